// Products of bfloat16 rows with int8 weights on AMX: rows are made int8 too, each with a scale of its own, sums are
// exact in int32, and both scales are applied once at the end.
//
// Packed weights are tiles of 16 outputs and 64 inputs, a tile's inputs in fours: packed[outputs / 16, inputs / 64, 16,
// 16, 4], where entry [.., .., k, n, j] is input 4 * k + j of output n. So a tile is 1 KiB in one piece and weights are
// read from memory once, in order.
#include <algorithm>
#include <cmath>

#include "tiles.h"
#include "vectors.h"

namespace {

constexpr int INPUTS = 64;  // inputs that one tile instruction sums over
constexpr int TILE = ROWS * INPUTS;

// to[n] = from[n] / scale as int8; returns the scale, 0 for a row of zeros.
float quantize(const bf16* from, int8_t* to, int64_t n) {
  Row most = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) most = _mm512_max_ps(most, _mm512_abs_ps(load_bf16(from + i)));
  const float scale = _mm512_reduce_max_ps(most) / 127.0f;
  const Row inverse = _mm512_set1_ps(scale > 0.0f ? 1.0f / scale : 0.0f);
  for (int64_t i = 0; i < n; i += 16) {
    const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(load_bf16(from + i), inverse));
    _mm_storeu_si128((__m128i*)(to + i), _mm512_cvtsepi32_epi8(whole));
  }
  return scale;
}

void store(const int32_t (*sums)[ROWS], bf16* out, int64_t stride, int64_t rows, const float* row_scales,
           const float* scales) {
  const Row by_output = _mm512_loadu_ps(scales);
  for (int64_t row = 0; row < rows; row++) {
    const Row sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums[row]));
    store_bf16(out + row * stride, _mm512_mul_ps(_mm512_mul_ps(sum, _mm512_set1_ps(row_scales[row])), by_output));
  }
}

// Up to 32 rows with 32 outputs; both are in whole tiles.
template <bool TWO>
void multiply(const int8_t* x, const int8_t* packed, int64_t inputs, int32_t (*sums)[ROWS][ROWS]) {
  const int8_t* other = packed + inputs * ROWS;
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (TWO) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < inputs; i += INPUTS) {
    _tile_loadd(4, packed + i * ROWS, INPUTS);
    _tile_loadd(5, other + i * ROWS, INPUTS);
    _tile_loadd(6, x + i, inputs);
    _tile_dpbssd(0, 6, 4);
    _tile_dpbssd(1, 6, 5);
    if constexpr (TWO) {
      _tile_loadd(7, x + ROWS * inputs + i, inputs);
      _tile_dpbssd(2, 7, 4);
      _tile_dpbssd(3, 7, 5);
    }
  }
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  if constexpr (TWO) {
    _tile_stored(2, sums[2], 64);
    _tile_stored(3, sums[3], 64);
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
    _tile_loadconfig(&TILES);
    alignas(64) int32_t sums[4][ROWS][ROWS];
#pragma omp for schedule(static)
    for (int64_t output = 0; output < outputs; output += 2 * ROWS) {
      const int8_t* tiles = packed + output * inputs;
      for (int64_t row = 0; row < rows; row += 2 * ROWS) {
        const bool two = rows - row > ROWS;
        (two ? multiply<true> : multiply<false>)(quantized + row * inputs, tiles, inputs, sums);
        for (int half = 0; half <= two; half++) {
          const int64_t first = row + half * ROWS, count = std::min<int64_t>(ROWS, rows - first);
          bf16* to = out + first * outputs + output;
          store(sums[2 * half], to, outputs, count, row_scales + first, scales + output);
          store(sums[2 * half + 1], to + ROWS, outputs, count, row_scales + first, scales + output + ROWS);
        }
      }
    }
    _tile_release();
  }
}
