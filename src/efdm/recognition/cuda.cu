// Kernels of a training step on pictures: bilinear resampling; ReLU and max pooling of bfloat16 features with
// channels last.

typedef unsigned int word;
typedef unsigned char byte;

#define THREAD(count)                              \
    int t = blockIdx.x * blockDim.x + threadIdx.x; \
    if (t >= (count)) return;

// Resample a window of each picture. `windows` holds tops, lefts, heights and widths, one number per picture each.
// A thread computes one pixel of the result in all three channels.

struct Line { int first, second; float weight; };  // neighbouring pixels, and the weight of the second

__device__ Line line_of(float start, float extent, int k, int size, int length)
{
    float at = fminf(fmaxf(start + (k + 0.5f) * (extent / size) - 0.5f, 0), length - 1);
    int first = (int)at;
    return {first, min(first + 1, length - 1), at - first};
}

extern "C" __global__ void resample(
    const byte* images, const float* windows, const byte* flipped, float* result, int height, int width, int rows, int columns, int batch)
{
    THREAD(batch * rows * columns)
    int x = t % columns, y = t / columns % rows, image = t / columns / rows;
    const float* window = windows + image;
    Line down = line_of(window[0], window[2 * batch], y, rows, height);
    Line right = line_of(window[batch], window[3 * batch], flipped && flipped[image] ? columns - 1 - x : x, columns, width);
    for (int c = 0; c < 3; c++) {
        const byte* plane = images + ((long long)image * 3 + c) * height * width;
        const byte *above = plane + down.first * width, *below = plane + down.second * width;
        float high = above[right.first] * (1 - right.weight) + above[right.second] * right.weight;
        float low = below[right.first] * (1 - right.weight) + below[right.second] * right.weight;
        result[((image * 3 + c) * rows + y) * columns + x] = high * (1 - down.weight) + low * down.weight;
    }
}

// ReLU and max pooling, 3 x 3 with stride 2 and padding 1. A thread handles eight channels of one output pixel (i, j) in the forward
// pass, and of the input pixels (2i, 2j) to (2i + 1, 2j + 1) in the backward pass, which lie in four windows.

struct alignas(16) Eight { word pairs[4]; };
struct alignas(8) Places { byte of[8]; };  // of the maximum in its window, row by row; 9 if no value is positive

__device__ float value(const Eight& x, int k)
{
    return __uint_as_float(k & 1 ? x.pairs[k / 2] & 0xffff0000u : x.pairs[k / 2] << 16);
}

__device__ word rounded(float x)  // to bfloat16, to nearest even
{
    word u = __float_as_uint(x);
    return x != x ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1)) >> 16;
}

__device__ Eight packed(const float* x)
{
    Eight y;
    for (int k = 0; k < 4; k++) y.pairs[k] = rounded(x[2 * k]) | rounded(x[2 * k + 1]) << 16;
    return y;
}

#define OUTPUT_OF_THREAD                                \
    THREAD(outputs)                                     \
    int rows = (height + 1) / 2, columns = (width + 1) / 2; \
    int c = t % groups, j = t / groups % columns;       \
    int i = t / groups / columns % rows, image = t / groups / columns / rows;

extern "C" __global__ void relu_max_pool(
    const Eight* x, Eight* y, Places* places, int height, int width, int groups, int outputs)
{
    OUTPUT_OF_THREAD
    float best[8] = {};
    Places place;
    for (int k = 0; k < 8; k++) place.of[k] = 9;
#pragma unroll
    for (int at = 0; at < 9; at++) {
        int row = 2 * i - 1 + at / 3, column = 2 * j - 1 + at % 3;
        if (row < 0 || row >= height || column < 0 || column >= width) continue;
        Eight read = x[((image * height + row) * width + column) * groups + c];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float v = value(read, k);
            if (v > best[k] || v != v) best[k] = v, place.of[k] = at;
        }
    }
    y[t] = packed(best);
    places[t] = place;
}

extern "C" __global__ void relu_max_pool_backward(
    const Eight* gradient, const Places* places, Eight* result, int height, int width, int groups, int outputs)
{
    OUTPUT_OF_THREAD
    float sums[4][8] = {};
#pragma unroll
    for (int window = 0; window < 4; window++) {
        int down = window / 2, right = window % 2;
        if (i + down >= rows || j + right >= columns) continue;
        int from = t + (down * columns + right) * groups;
        Eight read = gradient[from];
        Places place = places[from];
#pragma unroll
        for (int pixel = 0; pixel < 4; pixel++) {
            int row = 1 + pixel / 2 - 2 * down, column = 1 + pixel % 2 - 2 * right;  // of the pixel in this window
            if (row < 0 || column < 0) continue;
#pragma unroll
            for (int k = 0; k < 8; k++)
                if (place.of[k] == row * 3 + column) sums[pixel][k] += value(read, k);
        }
    }
#pragma unroll
    for (int pixel = 0; pixel < 4; pixel++) {
        int row = 2 * i + pixel / 2, column = 2 * j + pixel % 2;
        if (row < height && column < width)
            result[((image * height + row) * width + column) * groups + c] = packed(sums[pixel]);
    }
}
