// Products of bfloat16 rows with int8 weights: rows are made int8 too, each with a scale of its own, sums are exact in
// int32, and both scales are applied once at the end.
//
// Packed weights are tiles of 16 outputs and 64 inputs, a tile's inputs in fours: packed[outputs / 16, inputs / 64, 16,
// 16, 4], where entry [.., .., k, n, j] is input 4 * k + j of output n. So a tile is 1 KiB in one piece and weights are
// read from memory once, in order.
#include "operations.h"
#if defined(__AMX_INT8__)
#include "int8_amx.h"
#else
#include "int8_vectors.h"
#endif

namespace {

constexpr int OUTPUTS = 2 * ROWS;

// to[n] = from[n] / scale as int8, and the offset; returns the scale, 0 for a row of zeros.
float quantize(const bf16* from, int8_t* to, int64_t n) {
  Ints most{};
  for (int64_t i = 0; i < n; i += LANES) most = largest_size(most, load_bf16(from + i));
  const float scale = highest_size(most) / 127.0f, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  for (int64_t i = 0; i < n; i += LANES) {
    const Ints whole = nearest(load_bf16(from + i) * inverse) + OFFSET;
    int32_t numbers[LANES];
    ::store(numbers, whole);
    for (int lane = 0; lane < LANES; lane++) to[i + lane] = int8_t(numbers[lane]);
  }
  return scale;
}

void store(const int32_t (*sums)[OUTPUTS], bf16* out, int64_t stride, int64_t rows, const float* row_scales,
           const float* scales) {
  for (int64_t row = 0; row < rows; row++) {
    for (int i = 0; i < OUTPUTS; i += LANES) {
      const Row sum = __builtin_convertvector(load<Ints>(sums[row] + i), Row);
      store_bf16(out + row * stride + i, sum * row_scales[row] * load_row(scales + i));
    }
  }
}

}  // namespace

// out[rows, outputs] = x[rows, inputs] * weight; inputs in whole 64, outputs in whole 32. quantized, in whole tiles of
// 16 rows, and row_scales[rows] are memory to work in.
extern "C" void int8_matmul(bf16* out, const bf16* x, const int8_t* packed, const float* scales, int8_t* quantized,
                            float* row_scales, int64_t rows, int64_t outputs, int64_t inputs, int threads) {
#pragma omp parallel num_threads(threads)
  {
#pragma omp for
    for (int64_t row = 0; row < rows; row++)
      row_scales[row] = quantize(x + row * inputs, quantized + row * inputs, inputs);
    begin();
    alignas(64) int32_t sums[2 * ROWS][OUTPUTS];
#pragma omp for schedule(static)
    for (int64_t output = 0; output < outputs; output += OUTPUTS) {
      for (int64_t row = 0, count; row < rows; row += count) {
        count = rows_at_once(rows - row);
        multiply(count, quantized + row * inputs, packed + output * inputs, inputs, sums);
        store(sums, out + row * outputs + output, outputs, count, row_scales + row, scales + output);
      }
    }
    end();
  }
}
