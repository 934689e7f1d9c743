// Sort-matching, one thread block per row. Compiled at run time by cuda.py, which sets
//   THREADS  threads of a block          ITEMS  elements of a thread (THREADS * ITEMS >= row length)
//   MIN_BLOCKS  blocks wanted per multiprocessor (caps the registers)
//   HALF  1: the values are 16-bit floats, 0: 32-bit floats
//
// A row is sorted by its bits: a float becomes an unsigned key with the same order. What moves through shared memory is
// always one 32-bit word. For the content that word is (16 key bits, 16-bit position): the low half of the key is sorted
// first, then the high half is looked up by position and sorted, so carrying the position costs nothing and the sort is
// stable. Sixteen bits take two passes of eight. Within a pass every warp counts its digits, the counts are scanned over
// digits and warps, and lanes with equal digits find each other with ballots.

typedef unsigned int word;
typedef unsigned short half_word;

#if HALF
typedef half_word raw;
#define SIGN 0x8000u
#define NAN_FLOOR(u, infinity) (((u) & 0x7fffu) > (infinity))
#define KEY_BITS 16
#define LAST_KEY 0xffffu
#else
typedef word raw;
#define SIGN 0x80000000u
#define NAN_FLOOR(u, infinity) (((u) & 0x7fffffffu) > (infinity))
#define KEY_BITS 32
#define LAST_KEY 0xffffffffu
#endif

const int WARPS = THREADS / 32;
const int RADIX = 256;
const int BINS = RADIX > THREADS ? RADIX / THREADS : 1;  // digits a thread scans
const int SCANNERS = RADIX / BINS;
const int CAPACITY = THREADS * ITEMS;

struct Counts {
  word warp[WARPS][RADIX];
  word totals[32];
};
union Shared {
  Counts counts;
  word exchange[CAPACITY];
};

// Content: -0 and +0 are equal, every NaN is equal and last, so that ties are decided by position alone.
__device__ __forceinline__ word content_key(word u, word infinity) {
  if (NAN_FLOOR(u, infinity)) return LAST_KEY;
  if ((u & ~SIGN & LAST_KEY) == 0) u = 0;
  return (u & SIGN) ? (~u & LAST_KEY) : (u | SIGN);
}
// Style: the bits must survive the round trip, so only the sign of a NaN is dropped.
__device__ __forceinline__ word style_key(word u, word infinity) {
  if (NAN_FLOOR(u, infinity)) u &= ~SIGN;
  return (u & SIGN) ? (~u & LAST_KEY) : (u | SIGN);
}
__device__ __forceinline__ raw style_value(word k) { return (raw)((k & SIGN) ? (k ^ SIGN) : ~k); }

// Warp-striped: item k of a lane. Reading and writing shared memory this way has no bank conflicts.
__device__ __forceinline__ int position(int k) { return (threadIdx.x / 32) * 32 * ITEMS + k * 32 + threadIdx.x % 32; }

__device__ __forceinline__ word lanes_with_my_digit(word digit) {
  word lanes = ~0u;
#pragma unroll
  for (int b = 0; b < 8; b++) {
    word bit = (digit >> b) & 1;
    lanes &= __ballot_sync(~0u, bit) ^ (bit - 1);
  }
  return lanes;
}

// Turns the counts of every (warp, digit) into the first rank of that warp's items with that digit.
__device__ void scan_counts(Counts &c) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  bool scans = threadIdx.x < SCANNERS;
  word total = 0;
  if (scans)
#pragma unroll
    for (int q = 0; q < BINS; q++)
      for (int w = 0; w < WARPS; w++) {
        word count = c.warp[w][threadIdx.x * BINS + q];
        c.warp[w][threadIdx.x * BINS + q] = total;
        total += count;
      }
  word upto = total;
#pragma unroll
  for (int o = 1; o < 32; o <<= 1) {
    word v = __shfl_up_sync(~0u, upto, o);
    if (lane >= o) upto += v;
  }
  if (lane == 31) c.totals[warp] = upto;
  __syncthreads();
  word before = upto - total;
  if (scans) {
    for (int w = 0; w < warp; w++) before += c.totals[w];
#pragma unroll
    for (int q = 0; q < BINS; q++)
      for (int w = 0; w < WARPS; w++) c.warp[w][threadIdx.x * BINS + q] += before;
  }
  __syncthreads();
}

// Sorts the block's items by bits [begin, end), stably; item k of a lane holds rank position(k) afterwards.
__device__ void sort_bits(word (&items)[ITEMS], Shared &shared, int begin, int end) {
  int lane = threadIdx.x % 32;
  word *counts = shared.counts.warp[threadIdx.x / 32];
#pragma unroll 1
  for (int bit = begin; bit < end; bit += 8) {
    for (int d = lane; d < RADIX; d += 32) counts[d] = 0;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < ITEMS; k++) atomicAdd(&counts[(items[k] >> bit) & 255], 1u);
    __syncthreads();
    scan_counts(shared.counts);
    word ranks[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
      word digit = (items[k] >> bit) & 255;
      word lanes = lanes_with_my_digit(digit);
      int leader = 31 - __clz(lanes);
      word first = 0;
      if (lane == leader) first = atomicAdd(&counts[digit], (word)__popc(lanes));
      first = __shfl_sync(~0u, first, leader);
      ranks[k] = first + __popc(lanes & ((1u << lane) - 1));
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; k++) shared.exchange[ranks[k]] = items[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; k++) items[k] = shared.exchange[position(k)];
    __syncthreads();
  }
}

// items[k] becomes (high key bits, position of the element with rank position(k)). Places past n sort last.
__device__ void sort_content(const raw *x, int n, word infinity, word (&items)[ITEMS], Shared &shared, word *keys) {
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    int i = position(k);
    word key = i < n ? content_key(x[i], infinity) : LAST_KEY;
#if !HALF
    keys[i] = key;
#endif
    items[k] = (key << 16) | i;
  }
  sort_bits(items, shared, 16, 32);
#if !HALF
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    word i = items[k] & 0xffff;
    items[k] = (keys[i] & 0xffff0000u) | i;
  }
  sort_bits(items, shared, 16, 32);
#endif
}

__device__ void sort_style(const raw *y, int n, word infinity, word (&items)[ITEMS], Shared &shared) {
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    int i = position(k);
    items[k] = i < n ? style_key(y[i], infinity) : LAST_KEY;
  }
  sort_bits(items, shared, 0, KEY_BITS);
}

__device__ __forceinline__ Shared &shared_memory(word *&keys) {
  extern __shared__ word memory[];
  keys = memory + (sizeof(Shared) + 15) / 16 * 4;
  return *reinterpret_cast<Shared *>(memory);
}

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)

// out[position of the i-th smallest x] = i-th smallest y
KERNEL match_style(const raw *x, const raw *y, raw *out, int n, word infinity) {
  word *keys;
  Shared &shared = shared_memory(keys);
  size_t row = (size_t)blockIdx.x * n;
  word items[ITEMS];
  half_word where[ITEMS];
  sort_content(x + row, n, infinity, items, shared, keys);
#pragma unroll
  for (int k = 0; k < ITEMS; k++) where[k] = items[k];
  sort_style(y + row, n, infinity, items, shared);
  raw *matched = reinterpret_cast<raw *>(shared.exchange);
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (position(k) < n) matched[where[k]] = style_value(items[k]);
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += THREADS) out[row + i] = matched[i];
}

// The same with a style that is sorted already.
KERNEL match_sorted(const raw *x, const raw *sorted, raw *out, int n, word infinity) {
  word *keys;
  Shared &shared = shared_memory(keys);
  size_t row = (size_t)blockIdx.x * n;
  word items[ITEMS];
  sort_content(x + row, n, infinity, items, shared, keys);
  raw *matched = reinterpret_cast<raw *>(shared.exchange);
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (position(k) < n) matched[items[k] & 0xffff] = sorted[row + position(k)];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += THREADS) out[row + i] = matched[i];
}

// Both answers of one sort: the sorted values, and the rank of every element.
KERNEL sort_rank(const raw *x, raw *sorted, int *rank, int n, word infinity) {
  word *keys;
  Shared &shared = shared_memory(keys);
  size_t row = (size_t)blockIdx.x * n;
  word items[ITEMS];
  sort_content(x + row, n, infinity, items, shared, keys);
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (position(k) < n) {
      sorted[row + position(k)] = x[row + (items[k] & 0xffff)];
      shared.exchange[items[k] & 0xffff] = position(k);
    }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += THREADS) rank[row + i] = shared.exchange[i];
}

// Long rows are cut into chunks, a block each; chunk_* sort the chunks and merge_* find every element's rank in the row.
#define CHUNK_OF_BLOCK                                               \
  int part = blockIdx.x % chunks;                                    \
  size_t start = (size_t)(blockIdx.x / chunks) * n + part * CAPACITY; \
  int size = min(CAPACITY, n - part * CAPACITY);

KERNEL chunk_values(const raw *y, raw *out, int n, int chunks, word infinity) {
  word *keys;
  Shared &shared = shared_memory(keys);
  CHUNK_OF_BLOCK
  word items[ITEMS];
  sort_style(y + start, size, infinity, items, shared);
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (position(k) < size) out[start + position(k)] = style_value(items[k]);
}

KERNEL chunk_order(const raw *x, raw *chunked, half_word *order, int n, int chunks, word infinity) {
  word *keys;
  Shared &shared = shared_memory(keys);
  CHUNK_OF_BLOCK
  word items[ITEMS];
  sort_content(x + start, size, infinity, items, shared, keys);
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (position(k) < size) {
      order[start + position(k)] = items[k] & 0xffff;
      chunked[start + position(k)] = x[start + (items[k] & 0xffff)];
    }
}

// How many of the sorted keys are below `key` (or_equal: not above it).
template <class Key> __device__ int count_below(Key key_at, int size, word key, bool or_equal) {
  int low = 0;
  while (size > 0) {
    int middle = size / 2;
    word k = key_at(low + middle);
    bool right = or_equal ? k <= key : k < key;
    low = right ? low + middle + 1 : low;
    size = right ? size - middle - 1 : middle;
  }
  return low;
}

// Equal keys keep the order of their chunks, so earlier chunks count "not above" and later ones "below".
template <class Key> __device__ int rank_in_row(Key key_in_row, int i, int n, int chunks) {
  int part = i / CAPACITY, rank = i % CAPACITY;
  word key = key_in_row(i);
  for (int other = 0; other < chunks; other++) {
    if (other == part) continue;
    int start = other * CAPACITY;
    rank += count_below([&](int i) { return key_in_row(start + i); }, min(CAPACITY, n - start), key, other < part);
  }
  return rank;
}

#define ELEMENT_OF_THREAD                        \
  int i = blockIdx.y * blockDim.x + threadIdx.x; \
  if (i >= n) return;                            \
  size_t row = (size_t)blockIdx.x * n;

extern "C" __global__ void merge_values(const raw *chunked, raw *out, int n, int chunks, word infinity) {
  ELEMENT_OF_THREAD
  const raw *y = chunked + row;
  auto key_in_row = [&](int j) { return style_key(y[j], infinity); };
  out[row + rank_in_row(key_in_row, i, n, chunks)] = y[i];
}

// A null pointer is an answer nobody asked for: `out` takes `values` placed by rank, `sorted` and `rank` are sort_rank's.
extern "C" __global__ void merge_content(const raw *chunked, const half_word *order, const raw *values, raw *out,
                                         raw *sorted, int *rank, int n, int chunks, word infinity) {
  ELEMENT_OF_THREAD
  const raw *x = chunked + row;
  auto key_in_row = [&](int j) { return content_key(x[j], infinity); };
  int r = rank_in_row(key_in_row, i, n, chunks);
  size_t home = row + i / CAPACITY * CAPACITY + order[row + i];
  if (out) out[home] = values[row + r];
  if (sorted) sorted[row + r] = x[i];
  if (rank) rank[home] = r;
}

extern "C" __global__ void take(const raw *sorted, const int *rank, raw *out, int n) {
  ELEMENT_OF_THREAD
  out[row + i] = sorted[row + rank[row + i]];
}
