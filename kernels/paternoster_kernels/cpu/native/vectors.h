// bfloat16 rows as AVX-512 vectors of 16 floats.
#pragma once
#include <immintrin.h>

#include <cstdint>

using bf16 = uint16_t;
using Row = __m512;

// Rows below this many elements together are done by one thread: waking a second one costs more.
constexpr int64_t PARALLEL_ELEMENTS = 16384;

inline Row load_bf16(const bf16* from) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)from)), 16));
}

inline void store_bf16(bf16* to, Row values) { _mm256_storeu_si256((__m256i*)to, (__m256i)_mm512_cvtneps_pbh(values)); }

// What a float is after a store and a load.
inline Row round_bf16(Row values) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(values)), 16));
}

// 2**x for x <= 127, and the smallest normal number below -126. Taylor polynomial of 2**x on [-0.5, 0.5].
inline Row exp2(Row x) {
  x = _mm512_max_ps(x, _mm512_set1_ps(-126.0f));
  const Row whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const Row part = _mm512_sub_ps(x, whole);
  Row y = _mm512_set1_ps(1.5403530393381610e-4f);
  y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(1.3333558146428443e-3f));
  y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(9.6181291076284772e-3f));
  y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(5.5504108664821580e-2f));
  y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(2.4022650695910071e-1f));
  y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(6.9314718055994531e-1f));
  y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(y, whole);
}

constexpr float LOG2E = 1.44269504088896341f;
