// bfloat16 rows as vectors of as many floats as the instruction set's registers hold.
//
// Arithmetic is the compiler's own on vectors, which it lowers for any set; intrinsics are used where it has no operator
// or misses an instruction.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

using bf16 = uint16_t;

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Row __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));
typedef int8_t SignedBytes __attribute__((vector_size(LANES)));

// Rows below this many elements together are done by one thread: waking a second one costs more.
constexpr int64_t PARALLEL_ELEMENTS = 16384;

template <class Vector, class Number>
inline Vector load(const Number* from) {
  Vector values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

template <class Vector, class Number>
inline void store(Number* to, Vector values) {
  std::memcpy(to, &values, sizeof values);
}

inline Row load_row(const float* from) { return load<Row>(from); }

inline Row all(float value) { return value - Row{}; }

inline Row fma(Row a, Row b, Row c) { return a * b + c; }

// The second where either is no number.
inline Row max(Row a, Row b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

inline Row min(Row a, Row b) {
#if defined(__AVX512F__)
  return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

// As integers, floats without their sign bit are ordered by magnitude, with NaN above infinity. So a maximum of these
// integers keeps NaN, which a maximum of floats loses.
constexpr int32_t INFINITE_SIZE = 0x7f800000;
inline Ints largest_size(Ints sizes, Row values) {
  const Ints size = (Ints)values & 0x7fffffff;
#if defined(__AVX512F__)
  return (Ints)_mm512_max_epi32((__m512i)sizes, (__m512i)size);
#elif defined(__AVX2__)
  return (Ints)_mm256_max_epi32((__m256i)sizes, (__m256i)size);
#else
  return sizes > size ? sizes : size;
#endif
}

// Whether one of the lanes of a comparison holds.
inline bool any(Ints lanes) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)lanes, (__m512i)lanes) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_epi8((__m256i)lanes) != 0;
#else
  uint64_t halves[LANES / 2];
  std::memcpy(halves, &lanes, sizeof lanes);
  uint64_t together = 0;
  for (uint64_t half : halves) together |= half;
  return together != 0;
#endif
}

// Whether one of the values passed to largest_size is NaN.
inline bool has_nan(Ints sizes) { return any(sizes > INFINITE_SIZE); }

// The number of each lane.
inline Ints lane_numbers() {
  alignas(64) static const int32_t NUMBERS[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load<Ints>(NUMBERS);
}

// The lanes low to high, the others replaced.
inline Row within(int64_t low, int64_t high, Row values, float other) {
  const Ints lane = lane_numbers();
  return (lane >= int32_t(low)) & (lane < int32_t(high)) ? values : all(other);
}

// Halves with each other until one number is left.
template <class Number, class Vector, class Combine>
inline Number fold(Vector values, Combine combine) {
  alignas(64) Number numbers[LANES];
  std::memcpy(numbers, &values, sizeof values);
  for (int width = LANES / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; lane++) numbers[lane] = combine(numbers[lane], numbers[lane + width]);
  return numbers[0];
}

inline float sum(Row values) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(values);
#else
  return fold<float>(values, [](float a, float b) { return a + b; });
#endif
}

inline float highest(Row values) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(values);
#else
  return fold<float>(values, [](float a, float b) { return a > b ? a : b; });
#endif
}

// The largest magnitude of the values passed to largest_size; NaN if one of them is NaN.
inline float highest_size(Ints sizes) {
#if defined(__AVX512F__)
  const int32_t bits = _mm512_reduce_max_epi32((__m512i)sizes);
#else
  const int32_t bits = fold<int32_t>(sizes, [](int32_t a, int32_t b) { return a > b ? a : b; });
#endif
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline Row widen(Halves values) { return (Row)(__builtin_convertvector(values, Words) << 16); }

// To the nearest, to the even one of two; what is no number stays none.
inline Halves narrow(Row values) {
#if defined(__AVX512BF16__)
  return (Halves)_mm512_cvtneps_pbh(values);
#else
  const Words bits = (Words)values, rounded = bits + 0x7fffu + (bits >> 16 & 1u), none = (Words)(values != values);
  return __builtin_convertvector(((rounded & ~none) | ((bits | 0x400000u) & none)) >> 16, Halves);
#endif
}

inline float load_one(const bf16* from) {
  const uint32_t bits = uint32_t(*from) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline Row load_bf16(const bf16* from) { return widen(load<Halves>(from)); }

inline void store_bf16(bf16* to, Row values) { store(to, narrow(values)); }

inline void store_one(bf16* to, float value) { *to = narrow(all(value))[0]; }

// What a float is after a store and a load.
inline Row round_bf16(Row values) { return widen(narrow(values)); }

// The nearest whole numbers, the even one of two.
inline Ints nearest(Row values) {
#if defined(__AVX512F__)
  return (Ints)_mm512_cvtps_epi32(values);
#elif defined(__AVX2__)
  return (Ints)_mm256_cvtps_epi32(values);
#elif defined(__ARM_NEON)
  return (Ints)vcvtnq_s32_f32((float32x4_t)values);
#else
  Ints whole;
  for (int lane = 0; lane < LANES; lane++) whole[lane] = int32_t(__builtin_rintf(values[lane]));
  return whole;
#endif
}

// Whole numbers from -128 to 127, the nearest.
inline void store_int8(int8_t* to, Row values) { store(to, __builtin_convertvector(nearest(values), SignedBytes)); }

// Int8 numbers as bfloat16, which has all of them; n in whole pairs of vectors.
inline void widen_int8(const int8_t* from, bf16* to, int64_t n) {
  for (int64_t i = 0; i < n; i += 2 * LANES) {
#if defined(__AVX512BF16__)
    const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)(from + i))));
    const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)(from + i + 16))));
    store(to + i, _mm512_cvtne2ps_pbh(high, low));
#else
    for (int64_t j = i; j < i + 2 * LANES; j += LANES) {
      const Ints whole = __builtin_convertvector(load<SignedBytes>(from + j), Ints);
      const Words bits = (Words)__builtin_convertvector(whole, Row);
      store(to + j, __builtin_convertvector(bits >> 16, Halves));
    }
#endif
  }
}

// Added to a float below 2**22 in size it leaves the nearest whole number in the lowest bits.
constexpr float WHOLE = 12582912.0f;

// 2**x for x <= 127, the smallest normal number below -126, and NaN for NaN. Taylor polynomial of 2**x on [-0.5, 0.5].
inline Row exp2(Row x) {
  x = max(all(-126.0f), x);
  const Row shifted = x + WHOLE, part = x - (shifted - WHOLE);
  Row y = all(1.5403530393381610e-4f);
  y = fma(y, part, all(1.3333558146428443e-3f));
  y = fma(y, part, all(9.6181291076284772e-3f));
  y = fma(y, part, all(5.5504108664821580e-2f));
  y = fma(y, part, all(2.4022650695910071e-1f));
  y = fma(y, part, all(6.9314718055994531e-1f));
  y = fma(y, part, all(1.0f));
  // The whole number goes into the exponent.
  return y * (Row)(((Words)shifted << 23) + 0x3f800000u);
}

constexpr float LOG2E = 1.44269504088896341f;

// Beyond 10 it is 1 to the last bit but one.
inline Row tanh(Row x) {
  const Row power = exp2(min(all(10.0f), max(all(-10.0f), x)) * (2.0f * LOG2E));
  return 1.0f - 2.0f / (power + 1.0f);
}
