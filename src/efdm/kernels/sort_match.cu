// Sort-matching with one thread block per row, or several per longer row. Compiled at run time by cuda_launch.py, which defines
//   THREADS  threads per block          ITEMS  elements per thread (THREADS * ITEMS >= row length)
//   BLOCKS_BOTH_SIDES, BLOCKS_ONE_SIDE  desired blocks per multiprocessor, which cap the registers of kernels that sort
//                                       content and style, or only one of them
//   HALF  1 for 16-bit floats, 0 for 32-bit floats
//
// Rows are sorted by their bits: a float becomes an unsigned key of the same order. Shared memory always exchanges 32-bit
// words. For content the word is (16 key bits, 16-bit position): the low half of the key is sorted first, then the high half
// is looked up by position and sorted. Carrying the position is therefore free, and the sort is stable. Sixteen bits take two
// passes of eight. In each pass every warp counts its digits, a scan over digits and warps turns the counts into offsets, and
// ballots identify the lanes with equal digits.

typedef unsigned int word;
typedef unsigned short half_word;

#if HALF
typedef half_word raw;
#define SIGN 0x8000u
#define LAST_KEY 0xffffu
#else
typedef word raw;
#define SIGN 0x80000000u
#define LAST_KEY 0xffffffffu
#endif

const int WARPS = THREADS / 32;
const int RADIX = 256;
const int BINS = RADIX > THREADS ? RADIX / THREADS : 1;  // digits scanned per thread
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

__device__ __forceinline__ bool is_nan(word u, word infinity) { return (u & (SIGN - 1)) > infinity; }
// Content: both zeros get one key and all NaN get the last key, so the position decides ties.
__device__ __forceinline__ word content_key(word u, word infinity) {
  if (is_nan(u, infinity)) return LAST_KEY;
  if ((u & (SIGN - 1)) == 0) u = 0;
  return (u & SIGN) ? (~u & LAST_KEY) : (u | SIGN);
}
// Style: invertible except for the sign of NaN, which is dropped.
__device__ __forceinline__ word style_key(word u, word infinity) {
  if (is_nan(u, infinity)) u &= ~SIGN;
  return (u & SIGN) ? (~u & LAST_KEY) : (u | SIGN);
}
__device__ __forceinline__ raw style_value(word k) { return (raw)((k & SIGN) ? (k ^ SIGN) : ~k); }

// Index of item k of this lane among the consecutive 32 * COUNT of its warp. The warp-striped order avoids bank conflicts in
// shared memory.
template <int COUNT = ITEMS> __device__ __forceinline__ int position(int k) {
  return (threadIdx.x / 32 * COUNT + k) * 32 + threadIdx.x % 32;
}

// Byte `which` of a word in one instruction.
__device__ __forceinline__ word digit_of(word item, int which) { return __byte_perm(item, 0, 0x4440 | which); }

__device__ __forceinline__ word lanes_with_digit(word digit) {
  word lanes = ~0u;
#pragma unroll
  for (int b = 0; b < 8; b++) {
    // in PTX, because the compiler would convert the predicate to an integer and back
    word agree;
    asm("{ .reg .pred mine; .reg .b32 bit; and.b32 bit, %1, %2; setp.ne.u32 mine, bit, 0;"
        "  vote.sync.ballot.b32 %0, mine, 0xffffffff; @!mine not.b32 %0, %0; }"
        : "=r"(agree) : "r"(digit), "r"(1 << b));
    lanes &= agree;
  }
  return lanes;
}

// Replaces the count of every (warp, digit) by the rank of the first item of that warp with that digit.
__device__ void scan_counts(Counts &c) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  bool scans = threadIdx.x < SCANNERS;
  word total = 0;
  if (scans)
#pragma unroll
    for (int q = 0; q < BINS; q++)
#pragma unroll
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
#pragma unroll
      for (int w = 0; w < WARPS; w++) c.warp[w][threadIdx.x * BINS + q] += before;
  }
  __syncthreads();
}

// Sets the ranks of the items after a stable sort by one byte. Then shared.counts.warp[0][d] is the number of digits below d.
__device__ __forceinline__ void rank_by_byte(const word (&items)[ITEMS], word (&ranks)[ITEMS], Shared &shared, int byte) {
  int lane = threadIdx.x % 32;
  word *counts = shared.counts.warp[threadIdx.x / 32];
#pragma unroll
  for (int d = lane; d < RADIX; d += 32) counts[d] = 0;
  __syncwarp();
  word within[(ITEMS + 1) / 2] = {};  // rank among the warp's items with the same digit, packed in pairs to save registers
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    word digit = digit_of(items[k], byte);
    word lanes = lanes_with_digit(digit);
    int leader = 31 - __clz(lanes);
    word first = 0;
    // one lane adds for all lanes with this digit: after a ReLU half the lanes agree, and atomics on one address serialize
    if (lane == leader) first = atomicAdd(&counts[digit], (word)__popc(lanes));
    first = __shfl_sync(~0u, first, leader);
    within[k / 2] |= (first + __popc(lanes & ((1u << lane) - 1))) << k % 2 * 16;
  }
  __syncthreads();
  scan_counts(shared.counts);
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    ranks[k] = counts[digit_of(items[k], byte)] + (within[k / 2] >> k % 2 * 16 & 0xffff);
}

// Sorts the items of the block stably by bytes [begin, end). Afterwards item k of a lane has rank position(k).
__device__ void sort_bytes(word (&items)[ITEMS], Shared &shared, int begin, int end) {
#pragma unroll 1
  for (int byte = begin; byte < end; byte++) {
    word ranks[ITEMS];
    rank_by_byte(items, ranks, shared, byte);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; k++) shared.exchange[ranks[k]] = items[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; k++) items[k] = shared.exchange[position(k)];
    __syncthreads();
  }
}

// Sets items[k] to (low key bits, position(k)), and `keys` to the whole keys if they have 32 bits. Indices past n sort last.
__device__ void load_content(const raw *x, int n, word infinity, word (&items)[ITEMS], word *keys) {
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    int i = position(k);
    word key = i < n ? content_key(x[i], infinity) : LAST_KEY;
#if !HALF
    keys[i] = key;
#endif
    items[k] = (key << 16) | i;
  }
}

// Sets items[k] to (high key bits, position of the element with rank position(k)).
__device__ void sort_content(const raw *x, int n, word infinity, word (&items)[ITEMS], Shared &shared, word *keys) {
  load_content(x, n, infinity, items, keys);
  sort_bytes(items, shared, 2, 4);
#if !HALF
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    word i = items[k] & 0xffff;
    items[k] = (keys[i] & 0xffff0000u) | i;
  }
  sort_bytes(items, shared, 2, 4);
#endif
}

// Key of a loaded or sorted item.
__device__ __forceinline__ word key_of(word item, const word *keys) { return HALF ? item >> 16 : keys[item & 0xffff]; }

__device__ void sort_style(const raw *y, int n, word infinity, word (&items)[ITEMS], Shared &shared) {
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    int i = position(k);
    items[k] = i < n ? style_key(y[i], infinity) : LAST_KEY;
  }
  sort_bytes(items, shared, 0, sizeof(raw));
}

extern __shared__ word memory[];
__device__ __forceinline__ Shared &shared_memory(word *&keys) {
  keys = memory + (sizeof(Shared) + 15) / 16 * 4;
  return *reinterpret_cast<Shared *>(memory);
}

#define KERNEL(blocks) extern "C" __global__ void __launch_bounds__(THREADS, blocks)
#define ROW_OF_BLOCK                    \
  word *keys;                           \
  Shared &shared = shared_memory(keys); \
  size_t row = (size_t)blockIdx.x * n;  \
  word items[ITEMS];

// The second input is read after the first is sorted. Prefetching it hides the latency.
__device__ __forceinline__ void prefetch(const raw *row, int n) {
  const int line = 128 / sizeof(raw);
  for (int i = threadIdx.x * line; i < n; i += THREADS * line) asm volatile("prefetch.global.L2 [%0];" ::"l"(row + i));
}

// Writes value(k) of the item of rank position(k) to its position home(k) in the row, in shared memory first, so that writes
// are coalesced.
template <class Home, class Value>
__device__ __forceinline__ void scatter_row(Shared &shared, raw *out, int n, Home home, Value value) {
  raw *scattered = reinterpret_cast<raw *>(shared.exchange);
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (position(k) < n) scattered[home(k)] = value(k);
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += THREADS) out[i] = scattered[i];
}

// out[position of the i-th smallest x] = i-th smallest y.
KERNEL(BLOCKS_BOTH_SIDES) match_style(const raw *x, const raw *y, raw *out, int n, word infinity) {
  ROW_OF_BLOCK
  half_word where[ITEMS];
  prefetch(y + row, n);
  sort_content(x + row, n, infinity, items, shared, keys);
#pragma unroll
  for (int k = 0; k < ITEMS; k++) where[k] = items[k];
  sort_style(y + row, n, infinity, items, shared);
  scatter_row(shared, out + row, n, [&](int k) { return where[k]; }, [&](int k) { return style_value(items[k]); });
}

// match_style for a style that is already sorted.
KERNEL(BLOCKS_ONE_SIDE) match_sorted(const raw *x, const raw *sorted, raw *out, int n, word infinity) {
  ROW_OF_BLOCK
  prefetch(sorted + row, n);
  sort_content(x + row, n, infinity, items, shared, keys);
  scatter_row(shared, out + row, n, [&](int k) { return items[k] & 0xffff; }, [&](int k) { return sorted[row + position(k)]; });
}

// Returns true if the weights of all samples are zero, so nothing is mixed.
__device__ __forceinline__ bool all_weights_zero(const float *weights, int batch) {
  int any = 0;
  for (int i = threadIdx.x; i < batch; i += blockDim.x) any |= weights[i] != 0;
  return !__syncthreads_or(any);
}

// Writes the sorted values and either the rank of every element or the position of every sorted value: one of `rank` and
// `order` is null. With `weights`, does nothing if they are all zero.
KERNEL(BLOCKS_ONE_SIDE) sort_rank(const raw *x, raw *sorted, int *rank, half_word *order, const float *weights, int batch,
                                  int n, word infinity) {
  if (weights && all_weights_zero(weights, batch)) return;
  ROW_OF_BLOCK
  sort_content(x + row, n, infinity, items, shared, keys);
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (position(k) < n) {
      word home = items[k] & 0xffff;
      sorted[row + position(k)] = x[row + home];
      if (order) order[row + position(k)] = home;
      else shared.exchange[home] = position(k);
    }
  if (order) return;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += THREADS) rank[row + i] = shared.exchange[i];
}

KERNEL(BLOCKS_ONE_SIDE) sort_rows(const raw *y, raw *out, int n, word infinity) {
  ROW_OF_BLOCK
  sort_style(y + row, n, infinity, items, shared);
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (position(k) < n) out[row + position(k)] = style_value(items[k]);
}

// In the kernels below, consecutive blocks process the same row, so their scattered writes stay in the cache.
#define ROW_AND_TILE(size)                                      \
  int tiles = (n + (size) - 1) / (size), tile = blockIdx.x % tiles; \
  size_t row = (size_t)(blockIdx.x / tiles) * n;

extern "C" __global__ void take(const raw *sorted, const int *rank, raw *out, int n) {
  ROW_AND_TILE(blockDim.x)
  int i = tile * blockDim.x + threadIdx.x;
  if (i < n) out[row + i] = sorted[row + rank[row + i]];
}

#if HALF
// The bits of infinity distinguish float16 from bfloat16. CUDA's headers are not available to the run-time compiler.
__device__ __forceinline__ float to_float(raw u, word infinity) {
  if (infinity == 0x7f80u) return __uint_as_float((word)u << 16);
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(u));
  return f;
}
__device__ __forceinline__ raw from_float(float f, word infinity) {
  raw u;
  if (infinity == 0x7f80u) {
    word bits = __float_as_uint(f);
    return f != f ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;  // round to nearest even
  }
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(u) : "f"(f));
  return u;
}
#else
__device__ __forceinline__ float to_float(raw u, word) { return __uint_as_float(u); }
__device__ __forceinline__ raw from_float(float f, word) { return __float_as_uint(f); }
#endif

// Tolerant matching, as in reference.py: the mean of the sorted values over all ranks of similar content.

// Avoids bank conflicts if every thread accesses consecutive numbers in shared memory.
__device__ constexpr int padded(int i) { return i + (i >> 4); }

// What determines the radius of similar content, and the sum of the values.
struct Totals {
  double known, content, squares, values;  // content is relative to the first value of the row
};

__device__ __forceinline__ void add(Totals &a, const Totals &b) {
  a.known += b.known, a.content += b.content, a.squares += b.squares, a.values += b.values;
}

// Numbers in shared memory that sum_values needs.
__device__ constexpr int sums_size(int threads, int groups) { return padded(threads * groups) + threads / 32 * 4; }

// Writes the sum of the values up to each rank i to sums[padded(i)] and returns the totals of the block.
template <int BLOCK, int GROUPS, class Content>
__device__ Totals sum_values(Content content, float shift, const raw *values, int size, word infinity, double *sums) {
  Totals *warps = reinterpret_cast<Totals *>(sums + padded(BLOCK * GROUPS));
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float *staged = reinterpret_cast<float *>(sums);
  Totals mine = {}, all = {};
#pragma unroll
  for (int k = 0; k < GROUPS; k++) {
    int i = position<GROUPS>(k);
    float c = i < size ? content(i) : __uint_as_float(0x7fffffffu);
    staged[padded(i)] = i < size ? to_float(values[i], infinity) : 0;
    double off = (double)c - shift;
    if (c == c) add(mine, {1, off, off * off, 0});
  }
  __syncthreads();
  float own[GROUPS];  // consecutive values
#pragma unroll
  for (int k = 0; k < GROUPS; k++) mine.values += own[k] = staged[padded(threadIdx.x * GROUPS + k)];
  double sum = -mine.values;
#pragma unroll
  for (int o = 1; o < 32; o <<= 1) {
    Totals other = {__shfl_up_sync(~0u, mine.known, o), __shfl_up_sync(~0u, mine.content, o),
                    __shfl_up_sync(~0u, mine.squares, o), __shfl_up_sync(~0u, mine.values, o)};
    if (lane >= o) add(mine, other);
  }
  if (lane == 31) warps[warp] = mine;
  __syncthreads();  // all staged values are read
  for (int w = 0; w < BLOCK / 32; w++) {
    if (w == warp) sum += all.values + mine.values;
    add(all, warps[w]);
  }
#pragma unroll
  for (int k = 0; k < GROUPS; k++) sums[padded(threadIdx.x * GROUPS + k)] = sum += own[k];
  __syncthreads();
  return all;
}

// Returns how far similar content may differ. NaN for a single value.
__device__ __forceinline__ float radius_of(const Totals &row, double tolerance) {
  double variance = (row.squares - row.content * row.content / row.known) / (row.known - 1);
  return tolerance * sqrt(variance < 0 ? 0 : variance);
}

// Returns the first index of [low, high) for which the condition is false, or high.
template <class Condition> __device__ __forceinline__ int partition_point(int low, int high, Condition condition) {
  while (low < high) {
    int middle = (low + high) >> 1;
    if (condition(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Calls write(k, rank, value) for the 32 * GROUPS ranks of this warp, which start at `begin`. `sum_to(i)` is the sum of the
// values up to rank i. The first similar rank and the end of the similar ranks are monotone, so those of the first and the
// last rank of a group, which the lanes search together, bound the searches of the others.
template <int GROUPS, class Content, class Sum, class Write>
__device__ void average_values(Content content, Sum sum_to, const raw *values, const Totals &row, double tolerance, int begin,
                               int n, word infinity, Write write) {
  const float limit = __uint_as_float(0x7f800000u);
  float radius = radius_of(row, tolerance);
  bool finite = fabsf(radius) < limit && fabsf(to_float(values[0], infinity)) < limit &&
                fabsf(to_float(values[n - 1], infinity)) < limit;
  int known = finite ? (int)row.known : 0, lane = threadIdx.x % 32;
  // lane g: first rank similar to the first one of group g; lane 16 + g: end of the ranks similar to its last one
  int rank = begin + lane % 16 * 32, bound = known;
  if (lane % 16 < GROUPS && rank < known) {
    if (lane >= 16) rank = min(rank + 31, known - 1);
    float mine = content(rank), least = mine - radius;
    bound = partition_point(lane < 16 ? 0 : rank + 1, lane < 16 ? rank : known, [&](int i) {
      float other = content(i);
      return lane < 16 ? other < least : other - radius <= mine;
    });
  }
  int first_low = __shfl_sync(~0u, bound, 0), end_low = 0;
#pragma unroll
  for (int k = 0; k < GROUPS; k++) {
    int first_high = k + 1 < GROUPS ? __shfl_sync(~0u, bound, k + 1) : known, end_high = __shfl_sync(~0u, bound, 16 + k);
    rank = begin + k * 32 + lane;
    if (rank < known) {
      float mine = content(rank), least = mine - radius;
      int first = partition_point(first_low, min(first_high, rank), [&](int i) { return content(i) < least; });
      int end = partition_point(max(end_low, rank + 1), end_high, [&](int i) { return content(i) - radius <= mine; });
      double sum = sum_to(end - 1) - (first ? sum_to(first - 1) : 0);
      write(k, rank, end - first == 1 ? values[rank] : from_float((float)sum / (end - first), infinity));
    } else if (rank < n) {
      write(k, rank, values[rank]);
    }
    first_low = first_high, end_low = end_high;
  }
}

// match_sorted with a tolerance. Content that is already sorted is averaged in place.
KERNEL(BLOCKS_BOTH_SIDES) match_tolerant(const raw *x, const raw *sorted, raw *out, double tolerance, int is_sorted, int n,
                                         word infinity) {
  ROW_OF_BLOCK
  prefetch(sorted + row, n);
  if (is_sorted) load_content(x + row, n, infinity, items, keys);
  else sort_content(x + row, n, infinity, items, shared, keys);
  float *content = reinterpret_cast<float *>(shared.exchange);
  word where[(ITEMS + 1) / 2] = {};  // packed in pairs to save registers
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    content[position(k)] = to_float(style_value(key_of(items[k], keys)), infinity);
    where[k / 2] |= (items[k] & 0xffff) << k % 2 * 16;
  }
  __syncthreads();
  double *sums = reinterpret_cast<double *>(keys);  // the keys are no longer needed
  auto ordered = [&](int i) { return content[i]; };
  Totals totals = sum_values<THREADS, ITEMS>(ordered, content[0], sorted + row, n, infinity, sums);
  raw results[ITEMS];
  average_values<ITEMS>(ordered, [&](int i) { return sums[padded(i)]; }, sorted + row, totals, tolerance, position(0) & ~31, n,
                        infinity, [&](int k, int, raw value) { results[k] = value; });
  __syncthreads();
  auto home = [&](int k) { return where[k / 2] >> k % 2 * 16 & 0xffff; };
  scatter_row(shared, out + row, n, home, [&](int k) { return results[k]; });
}

// (1 - weight) * mine + weight * theirs. Equal infinities are returned unchanged because their difference is NaN.
__device__ __forceinline__ raw mixed(raw mine, raw theirs, float weight, word infinity) {
  if (weight == 0 || theirs == mine) return mine;
  if (weight == 1) return theirs;
  float a = to_float(mine, infinity), b = to_float(theirs, infinity);
  return from_float(weight < 0.5f ? a + weight * (b - a) : b - (1 - weight) * (b - a), infinity);
}

// Blends every sample b with the values of equal rank of sample partner[b], by weight[b].
extern "C" __global__ void mix_ranked(const raw *x, const raw *sorted, const int *rank, const long long *partner,
                                      const float *weights, raw *out, int channels, int n, word infinity) {
  ROW_AND_TILE(blockDim.x)
  int i = tile * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int channel = row / n % channels, sample = row / n / channels;
  float weight = weights[sample];
  raw mine = x[row + i], theirs = mine;
  if (weight != 0) theirs = sorted[((size_t)partner[sample] * channels + channel) * n + rank[row + i]];
  out[row + i] = mixed(mine, theirs, weight, infinity);
}

// Mixing of rows that fit a block takes three kernels: to_rows (for channels-last input), sort_rank and mix_ordered. If all
// weights are zero, the first two do nothing and the last one copies. The gradient takes two more, order_gradient and
// add_gradients.

const int TRANSPOSE_SIDE = 64;  // of squares in shared memory; an odd number of words per line avoids bank conflicts

// Transposes samples from (n, channels) to (channels, n).
extern "C" __global__ void to_rows(const raw *x, raw *rows, const float *weights, int batch, int channels, int n) {
  __shared__ raw square[TRANSPOSE_SIDE][TRANSPOSE_SIDE + 4 / sizeof(raw)];
  if (all_weights_zero(weights, batch)) return;
  int across = (channels + TRANSPOSE_SIDE - 1) / TRANSPOSE_SIDE, along = (n + TRANSPOSE_SIDE - 1) / TRANSPOSE_SIDE;
  int channel = blockIdx.x % across * TRANSPOSE_SIDE, first = blockIdx.x / across % along * TRANSPOSE_SIDE;
  size_t sample = (size_t)(blockIdx.x / across / along) * channels * n;
#pragma unroll 4
  for (int k = threadIdx.x; k < TRANSPOSE_SIDE * TRANSPOSE_SIDE; k += blockDim.x) {
    int c = channel + k % TRANSPOSE_SIDE, i = first + k / TRANSPOSE_SIDE;
    if (c < channels && i < n) square[k / TRANSPOSE_SIDE][k % TRANSPOSE_SIDE] = x[sample + (size_t)i * channels + c];
  }
  __syncthreads();
#pragma unroll 4
  for (int k = threadIdx.x; k < TRANSPOSE_SIDE * TRANSPOSE_SIDE; k += blockDim.x) {
    int c = channel + k / TRANSPOSE_SIDE, i = first + k % TRANSPOSE_SIDE;
    if (c < channels && i < n) rows[sample + (size_t)c * n + i] = square[k % TRANSPOSE_SIDE][k / TRANSPOSE_SIDE];
  }
}

__device__ void copy(const raw *x, raw *out, size_t count) {
  size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x, step = (size_t)gridDim.x * blockDim.x;
  bool aligned = ((size_t)x | (size_t)out) % sizeof(uint4) == 0;
  size_t wide = aligned ? count / (sizeof(uint4) / sizeof(raw)) : 0;
  for (size_t i = first; i < wide; i += step) reinterpret_cast<uint4 *>(out)[i] = reinterpret_cast<const uint4 *>(x)[i];
  for (size_t i = wide * (sizeof(uint4) / sizeof(raw)) + first; i < count; i += step) out[i] = x[i];
}

// In the kernels below, a block handles `group` channels of a sample (a power of two, at most its warps) in shared memory, so
// channels-last features are read and written in groups of neighbors. Each channel is a line of `stride` values, an odd number
// of words. By rank, a warp processes values first, first + step, ... of channel c.
const int MIX_THREADS = 512;
#define MIX_KERNEL extern "C" __global__ void __launch_bounds__(MIX_THREADS, 2)
#define LINES_OF_BLOCK                                                                                                     \
  raw *lines = reinterpret_cast<raw *>(memory);                                                                            \
  int groups = (channels + group - 1) / group, sample = blockIdx.x / groups, channel = blockIdx.x % groups * group;        \
  int count = min(group, channels - channel), warp = threadIdx.x / 32;                                                     \
  size_t start = (size_t)sample * channels * n;                                                                            \
  int c = warp % group, first = warp / group * 32 + threadIdx.x % 32, step = MIX_THREADS / group;                          \
  size_t row = start + (size_t)(channel + c) * n;

// Executes the statement for every value of this block: lines[line] is the value, `feature` its index in the features.
#define FOR_FEATURES(statement)                                                                                           \
  if (channels_last) {                                                                                                    \
    int last = threadIdx.x % group;                                                                                       \
    if (last < count)                                                                                                     \
      _Pragma("unroll 8") for (int i = threadIdx.x / group; i < n; i += step) {                                           \
        int line = last * stride + i;                                                                                     \
        size_t feature = start + (size_t)i * channels + channel + last;                                                   \
        statement;                                                                                                        \
      }                                                                                                                   \
  } else if (c < count) {                                                                                                 \
    _Pragma("unroll 8") for (int i = first; i < n; i += step) {                                                           \
      int line = c * stride + i;                                                                                          \
      size_t feature = row + i;                                                                                           \
      statement;                                                                                                          \
    }                                                                                                                     \
  }

// Mixes values of equal rank, which are read contiguously, and scatters the results to their positions in shared memory.
MIX_KERNEL mix_ordered(const raw *x, const raw *sorted, const half_word *order, const long long *partner, const float *weights,
                       raw *out, int batch, int channels, int n, int group, int stride, int channels_last, word infinity) {
  if (all_weights_zero(weights, batch)) return copy(x, out, (size_t)batch * channels * n);
  LINES_OF_BLOCK
  if (c < count) {
    float weight = weights[sample];
    size_t other = ((size_t)partner[sample] * channels + channel + c) * n;
#pragma unroll 4
    for (int i = first; i < n; i += step)
      lines[c * stride + order[row + i]] = mixed(sorted[row + i], sorted[other + i], weight, infinity);
  }
  __syncthreads();
  FOR_FEATURES(out[feature] = lines[line])
}

// The gradient takes two kernels. The samples mixed with sample b give it a share of their gradients. They form a list in
// ascending order: givers[b] is the first of them, givers[batch + a] follows sample a, and `batch` marks the end.

// Sorts the gradient as the features were sorted, and writes the lists. Does nothing if all weights are zero.
MIX_KERNEL order_gradient(const raw *grad, const half_word *__restrict__ order, const long long *partner, const float *weights,
                          raw *__restrict__ ordered, int *givers, int batch, int channels, int n, int group, int stride,
                          int channels_last, word) {
  if (all_weights_zero(weights, batch)) return;
  LINES_OF_BLOCK
  if (channel == 0) {
    int *found = reinterpret_cast<int *>(memory);  // first giver of this sample, and next giver to the same partner
    if (threadIdx.x < 2) found[threadIdx.x] = batch;
    __syncthreads();
    for (int a = threadIdx.x; a < batch; a += MIX_THREADS)
      if (weights[a] != 0) {
        if (partner[a] == sample) atomicMin(found, a);
        if (a > sample && partner[a] == partner[sample]) atomicMin(found + 1, a);
      }
    __syncthreads();
    if (threadIdx.x < 2) givers[threadIdx.x * batch + sample] = found[threadIdx.x];
    __syncthreads();
  }
  FOR_FEATURES(lines[line] = grad[feature])
  __syncthreads();
  if (c < count)
#pragma unroll 4
    for (int i = first; i < n; i += step) ordered[row + i] = lines[c * stride + order[row + i]];
}

// Adds the gradients of the givers by rank, in float32, and scatters the sums to their positions in shared memory.
MIX_KERNEL add_gradients(const raw *grad, const raw *ordered, const half_word *order, const int *givers, const float *weights,
                         raw *out, int batch, int channels, int n, int group, int stride, int channels_last, word infinity) {
  if (all_weights_zero(weights, batch)) return copy(grad, out, (size_t)batch * channels * n);
  LINES_OF_BLOCK
  const int ADDED = 8;  // values per thread and list, which is in global memory
  int head = givers[sample];
  if (c < count)
    for (int begin = first; begin < n; begin += ADDED * step) {
      float sums[ADDED];
#pragma unroll
      for (int k = 0; k < ADDED; k++) {
        int i = begin + k * step;
        sums[k] = i < n ? to_float(ordered[row + i], infinity) : 0;
      }
      for (int a = head; a < batch; a = givers[batch + a]) {
        float weight = weights[a];
        size_t other = ((size_t)a * channels + channel + c) * n;
#pragma unroll
        for (int k = 0; k < ADDED; k++) {
          int i = begin + k * step;
          if (i < n) sums[k] += weight * to_float(ordered[other + i], infinity);
        }
      }
#pragma unroll
      for (int k = 0; k < ADDED; k++) {
        int i = begin + k * step;
        if (i < n) lines[c * stride + order[row + i]] = from_float(sums[k], infinity);
      }
    }
  __syncthreads();
  FOR_FEATURES(out[feature] = lines[line])
}

// Rows of up to 65,536 values are split into chunks, one per block. Sorted chunks are merged in pairs, as keys, until the last
// merge writes the result. Content carries its 16-bit position in the row.
#define TILE_OF_BLOCK                                           \
  ROW_AND_TILE(CAPACITY)                                        \
  int first = tile * CAPACITY, size = min(CAPACITY, n - first); \
  word *keys;                                                   \
  Shared &shared = shared_memory(keys);                         \
  word items[ITEMS];

KERNEL(BLOCKS_ONE_SIDE) chunk_style(const raw *y, raw *sorted_keys, int n, word infinity) {
  TILE_OF_BLOCK
  sort_style(y + row + first, size, infinity, items, shared);
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (position(k) < size) sorted_keys[row + first + position(k)] = items[k];
}

KERNEL(BLOCKS_ONE_SIDE) chunk_content(const raw *x, raw *sorted_keys, half_word *positions, int n, word infinity) {
  TILE_OF_BLOCK
  sort_content(x + row + first, size, infinity, items, shared, keys);
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (position(k) < size) {
      int i = items[k] & 0xffff;
      positions[row + first + position(k)] = first + i;
      sorted_keys[row + first + position(k)] = key_of(items[k], keys);
    }
}

#define MERGE_THREADS 256
#define MERGE_ITEMS 8  // elements per thread
const int TILE = MERGE_THREADS * MERGE_ITEMS;

// Returns how many of the first `diagonal` elements of the merged sequence come from a. Equal keys come from a first.
template <class Keys> __device__ int split(Keys a, int a_size, Keys b, int b_size, int diagonal) {
  auto precedes = [&](int i) { return a[i] <= b[diagonal - 1 - i]; };
  return partition_point(max(0, diagonal - b_size), min(diagonal, a_size), precedes);
}

// Computes this block's TILE elements of the output of merging runs of `run` elements in pairs. Sets the keys of this thread
// and their source indices in the row, and returns the first output index of the tile. Ends with a barrier.
__device__ int merge_tile(const raw *row_keys, int tile_of_row, int n, int run, raw (&merged)[MERGE_ITEMS],
                          int (&from)[MERGE_ITEMS]) {
  __shared__ raw tile[TILE];
  __shared__ int splits[2];
  int first = tile_of_row * TILE, pair = first / (2 * run) * 2 * run;
  int a_size = min(run, n - pair), b_size = min(run, n - pair - a_size);
  const raw *a = row_keys + pair, *b = a + a_size;
  int begin = first - pair, end = min(begin + TILE, a_size + b_size);
  if (threadIdx.x < 2) splits[threadIdx.x] = split(a, a_size, b, b_size, threadIdx.x ? end : begin);
  __syncthreads();
  int a_begin = splits[0], a_count = splits[1] - a_begin, b_begin = begin - a_begin, count = end - begin;
  for (int i = threadIdx.x; i < count; i += MERGE_THREADS) tile[i] = i < a_count ? a[a_begin + i] : b[b_begin + i - a_count];
  __syncthreads();
  const raw *ta = tile, *tb = tile + a_count;
  int b_count = count - a_count, diagonal = min((int)threadIdx.x * MERGE_ITEMS, count);
  int i = split(ta, a_count, tb, b_count, diagonal), j = diagonal - i;
#pragma unroll
  for (int k = 0; k < MERGE_ITEMS; k++) {
    bool from_a = j >= b_count || (i < a_count && ta[i] <= tb[j]);
    int source = from_a ? i : a_count + j;
    merged[k] = tile[min(source, TILE - 1)];
    from[k] = from_a ? pair + a_begin + i : pair + a_size + b_begin + j;
    if (from_a) i++;
    else j++;
  }
  __syncthreads();
  return first;
}

// Thread t holds elements t * MERGE_ITEMS + k of the tile. They are exchanged first, so that writes are coalesced.
template <class T, class Write> __device__ void write_merged(T (&mine)[MERGE_ITEMS], int count, Write write) {
  __shared__ T tile[TILE];
#pragma unroll
  for (int k = 0; k < MERGE_ITEMS; k++) tile[threadIdx.x * MERGE_ITEMS + k] = mine[k];
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += MERGE_THREADS) write(i, tile[i]);
  __syncthreads();
}

#define MERGE_KERNEL extern "C" __global__ void __launch_bounds__(MERGE_THREADS)
#define MERGED_TILE(keys)                                                                       \
  ROW_AND_TILE(TILE)                                                                            \
  raw merged[MERGE_ITEMS];                                                                      \
  int from[MERGE_ITEMS];                                                                        \
  int first = merge_tile(keys + row, tile, n, run, merged, from), count = min(TILE, n - first); \
  size_t start = row + first;

MERGE_KERNEL merge_style(const raw *keys, raw *out, int n, int run, int is_last) {
  MERGED_TILE(keys)
  write_merged(merged, count, [&](int i, raw key) { out[start + i] = is_last ? style_value(key) : key; });
}

MERGE_KERNEL merge_content(const raw *keys, const half_word *positions, raw *out, half_word *out_positions, int n, int run,
                           int is_last) {
  MERGED_TILE(keys)
  write_merged(merged, count, [&](int i, raw key) { out[start + i] = is_last ? style_value(key) : key; });
  write_merged(from, count, [&](int i, int source) { out_positions[start + i] = positions[row + source]; });
}

// The last merge of content, fused with its use. `out` receives `values` scattered by rank, `sorted` and `rank` are as in
// sort_rank. Each of these outputs may be null.
MERGE_KERNEL scatter_content(const raw *keys, const half_word *positions, const raw *x, const raw *values, raw *out,
                             raw *sorted, int *rank, int n, int run) {
  MERGED_TILE(keys)
  write_merged(from, count, [&](int i, int source) {
    size_t home = row + positions[row + source];
    if (out) out[home] = values[start + i];
    if (sorted) sorted[start + i] = x[home];
    if (rank) rank[home] = first + i;
  });
}

// Longer rows are sorted by all blocks together, byte by byte from the lowest to the highest. A block handles a tile of CAPACITY
// elements: count_digits counts its digits, torch adds up the counts in the order (row, digit, tile), and move_style or
// move_content sorts the tile by the digit and moves every run of equal digits to its place in the row.
enum Kind { KEYS, CONTENT, STYLE };  // what an array holds: keys, or in the first pass the values of one side

// Indices past the tile get the last key.
__device__ __forceinline__ void load_tile(const raw *x, int size, int kind, word infinity, word (&items)[ITEMS]) {
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    int i = position(k);
    word u = i < size ? x[i] : 0;
    items[k] = i >= size ? LAST_KEY : kind == CONTENT ? content_key(u, infinity) : kind == STYLE ? style_key(u, infinity) : u;
  }
}

// Index of a digit of this tile in the counts.
__device__ __forceinline__ size_t digit_index(int digit, int tiles) {
  return ((size_t)(blockIdx.x / tiles) * RADIX + digit) * tiles + blockIdx.x % tiles;
}

KERNEL(BLOCKS_ONE_SIDE) count_digits(const raw *x, int *counts, int kind, int byte, int n, word infinity) {
  TILE_OF_BLOCK
  load_tile(x + row + first, size, kind, infinity, items);
  int lane = threadIdx.x % 32;
  word *mine = shared.counts.warp[threadIdx.x / 32];
#pragma unroll
  for (int d = lane; d < RADIX; d += 32) mine[d] = 0;
  __syncwarp();
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    word digit = digit_of(items[k], byte), lanes = lanes_with_digit(digit);
    if (lane == 31 - __clz(lanes)) atomicAdd(&mine[digit], (word)__popc(lanes));
  }
  __syncthreads();
  for (int d = threadIdx.x; d < RADIX; d += THREADS) {
    int total = d == RADIX - 1 ? size - CAPACITY : 0;  // indices past the tile have the last digit
    for (int w = 0; w < WARPS; w++) total += shared.counts.warp[w][d];
    counts[digit_index(d, tiles)] = total;
  }
}

// Sorts the items by one byte into shared.exchange and sets their ranks there. Element k * THREADS + threadIdx.x of the sorted
// tile has rank targets[k] in the row. `upto` holds the cumulative sum of `counts`.
__device__ __forceinline__ void sort_tile(const word (&items)[ITEMS], word (&ranks)[ITEMS], int (&targets)[ITEMS], Shared &shared,
                                          const int *counts, const long long *upto, int byte, int tiles, size_t row) {
  __shared__ int shifts[RADIX];
  rank_by_byte(items, ranks, shared, byte);
  for (int d = threadIdx.x; d < RADIX; d += THREADS) {
    size_t index = digit_index(d, tiles);
    shifts[d] = upto[index] - counts[index] - (long long)row - shared.counts.warp[0][d];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < ITEMS; k++) shared.exchange[ranks[k]] = items[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    int i = k * THREADS + threadIdx.x;
    targets[k] = shifts[digit_of(shared.exchange[i], byte)] + i;
  }
}

// Calls write(rank in the row, word) for every element of the sorted tile.
template <class Write>
__device__ __forceinline__ void write_tile(const int (&targets)[ITEMS], const Shared &shared, int size, Write write) {
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    int i = k * THREADS + threadIdx.x;
    if (i < size) write(targets[k], shared.exchange[i]);
  }
}

KERNEL(BLOCKS_BOTH_SIDES) move_style(const raw *x, const int *counts, const long long *upto, raw *out, int kind, int byte, int n,
                                     word infinity) {
  TILE_OF_BLOCK
  word ranks[ITEMS];
  int targets[ITEMS];
  load_tile(x + row + first, size, kind, infinity, items);
  sort_tile(items, ranks, targets, shared, counts, upto, byte, tiles, row);
  bool is_last = byte == sizeof(raw) - 1;
  write_tile(targets, shared, size, [&](int rank, word key) { out[row + rank] = is_last ? style_value(key) : key; });
}

// Content carries its positions, which are the indices in the first pass. All passes but the last write keys and positions.
// The last one writes those of its outputs that are not null: the positions, `values` scattered by rank, the sorted elements
// of `original`, and the ranks.
KERNEL(BLOCKS_BOTH_SIDES) move_content(const raw *x, const int *positions, const int *counts, const long long *upto, raw *out_keys,
                                       int *out_positions, const raw *original, const raw *values, raw *out, raw *sorted,
                                       int *out_ranks, int kind, int byte, int n, word infinity) {
  TILE_OF_BLOCK
  word ranks[ITEMS];
  int targets[ITEMS];
  load_tile(x + row + first, size, kind, infinity, items);
  sort_tile(items, ranks, targets, shared, counts, upto, byte, tiles, row);
  if (out_keys) write_tile(targets, shared, size, [&](int rank, word key) { out_keys[row + rank] = key; });
  __syncthreads();
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    int i = first + position(k);
    shared.exchange[ranks[k]] = kind == KEYS && i < n ? positions[row + i] : i;
  }
  __syncthreads();
  write_tile(targets, shared, size, [&](int rank, word home) {
    if (out_positions) out_positions[row + rank] = home;
    if (out) out[row + home] = values[row + rank];
    if (sorted) sorted[row + rank] = original[row + home];
    if (out_ranks) out_ranks[row + home] = rank;
  });
}

// Tolerant matching of long rows, given their sorted content. The first kernel sums the tiles, and the second one needs the
// cumulative totals of the tiles of each row.
MERGE_KERNEL sum_tiles(const raw *content, const raw *values, double *sums, Totals *totals, int n, word infinity) {
  __shared__ double shared_sums[sums_size(MERGE_THREADS, MERGE_ITEMS)];
  ROW_AND_TILE(TILE)
  size_t start = row + tile * TILE;
  int size = min(TILE, n - tile * TILE);
  auto ordered = [&](int i) { return to_float(content[start + i], infinity); };
  float shift = to_float(content[row], infinity);
  Totals mine = sum_values<MERGE_THREADS, MERGE_ITEMS>(ordered, shift, values + start, size, infinity, shared_sums);
  for (int i = threadIdx.x; i < size; i += MERGE_THREADS) sums[start + i] = shared_sums[padded(i)];
  if (threadIdx.x == 0) totals[blockIdx.x] = mine;
}

// The sorted content has `positions`, or `short_positions`, in the output. If both are null, it keeps its order.
MERGE_KERNEL average_tiles(const raw *content, const raw *values, const double *sums, const Totals *totals,
                           const half_word *short_positions, const int *positions, raw *out, double tolerance, int n,
                           word infinity) {
  ROW_AND_TILE(TILE)
  const Totals *upto = totals + blockIdx.x - tile;
  auto ordered = [&](int i) { return to_float(content[row + i], infinity); };
  auto sum_to = [&](int i) { return sums[row + i] + (i < TILE ? 0 : upto[(word)i / TILE - 1].values); };
  auto home = [&](int rank) {
    return short_positions ? short_positions[row + rank] : positions ? positions[row + rank] : rank;
  };
  int begin = tile * TILE + (threadIdx.x & ~31) * MERGE_ITEMS;
  average_values<MERGE_ITEMS>(ordered, sum_to, values + row, upto[tiles - 1], tolerance, begin, n, infinity,
                              [&](int, int rank, raw value) { out[row + home(rank)] = value; });
}
