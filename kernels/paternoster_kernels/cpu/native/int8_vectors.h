// The inner part of int8_matmul on vectors.
#pragma once
#include "sums.h"

#if defined(__AVX512VNNI__)
constexpr int OFFSET = 128;  // what is added to quantized rows: the instruction takes them without a sign
#else
constexpr int OFFSET = 0;
#endif
// Without an instruction for fours, sums of an output's first two inputs and last two lie side by side until the end.
#if defined(__AVX512VNNI__) || defined(__ARM_FEATURE_DOTPROD)
constexpr int PER_OUTPUT = 1;
#elif defined(__AVX2__)
constexpr int PER_OUTPUT = 2;
#else
constexpr int PER_OUTPUT = 4;
#endif
constexpr int INT_VECTORS = VECTORS * PER_OUTPUT;  // of a line's sums
constexpr int INT_ROWS = SUM_VECTORS / INT_VECTORS < SUM_ROWS ? SUM_VECTORS / INT_VECTORS : SUM_ROWS;

inline int64_t rows_at_once(int64_t left) {
  const int64_t parts = (left + INT_ROWS - 1) / INT_ROWS;
  return (left + parts - 1) / parts;
}

inline void begin() {}
inline void end() {}

// Four inputs of a row, times a part of a line, added to their sums.
inline Ints add_fours(Ints sum, uint32_t four, const int8_t* line) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(four), load<__m512i>(line));
#elif defined(__ARM_FEATURE_DOTPROD)
  return (Ints)vdotq_s32((int32x4_t)sum, vreinterpretq_s8_u32(vdupq_n_u32(four)), vld1q_s8(line));
#elif defined(__AVX512BW__)
  const __m512i x = _mm512_broadcastq_epi64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(four)));
  return sum + (Ints)_mm512_madd_epi16(x, _mm512_cvtepi8_epi16(load<__m256i>(line)));
#elif defined(__AVX2__)
  const __m256i x = _mm256_broadcastq_epi64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(four)));
  return sum + (Ints)_mm256_madd_epi16(x, _mm256_cvtepi8_epi16(load<__m128i>(line)));
#else
  for (int i = 0; i < LANES; i++) sum[i] += int8_t(four >> 8 * (i % 4)) * line[i];
  return sum;
#endif
}

// COUNT rows with one tile of outputs.
template <int COUNT>
void multiply_rows(const int8_t* x, const int8_t* tiles, int64_t inputs, int32_t (*sums)[2 * ROWS]) {
  Ints of[COUNT][INT_VECTORS] = {}, offsets[INT_VECTORS] = {};
  for (int64_t i = 0; i < inputs; i += 4) {
    const int8_t* line = tiles + i * ROWS;
#pragma GCC unroll 16
    for (int j = 0; j < INT_VECTORS; j++) {
      const int8_t* part = line + j * (LINE_INT8 / INT_VECTORS);
      if constexpr (OFFSET != 0) offsets[j] = add_fours(offsets[j], 0x01010101u, part);
#pragma GCC unroll 16
      for (int row = 0; row < COUNT; row++) {
        uint32_t four;
        std::memcpy(&four, x + row * inputs + i, sizeof four);
        of[row][j] = add_fours(of[row][j], four, part);
      }
    }
  }
  for (int row = 0; row < COUNT; row++) {
    int32_t parts[ROWS * PER_OUTPUT];
    for (int j = 0; j < INT_VECTORS; j++) store(parts + j * LANES, of[row][j] - OFFSET * offsets[j]);
    for (int output = 0; output < ROWS; output++) {
      sums[row][output] = 0;
      for (int j = 0; j < PER_OUTPUT; j++) sums[row][output] += parts[output * PER_OUTPUT + j];
    }
  }
}

// sums[rows, 32], at most rows_at_once, with 32 outputs.
inline void multiply(int64_t rows, const int8_t* x, const int8_t* packed, int64_t inputs, int32_t (*sums)[2 * ROWS]) {
  with_rows<INT_ROWS>(rows, [&](auto constant) {
    constexpr int COUNT = decltype(constant)::value;
    multiply_rows<COUNT>(x, packed, inputs, sums);
    multiply_rows<COUNT>(x, packed + inputs * ROWS, inputs, (int32_t(*)[2 * ROWS])(sums[0] + ROWS));
  });
}
