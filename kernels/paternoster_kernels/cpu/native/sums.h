// Products of rows with lines of tiles on vectors: sums of a few rows stay in registers while lines pass by.
//
// With an instruction for pairs of bfloat16 numbers rows are bfloat16, too. Without one they are widened beforehand, and
// a line is on the way: its even inputs are the low halves of its words, its odd ones the high halves.
#pragma once
#include <type_traits>

#include "tiles.h"
#include "vectors.h"

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define PAIR_PRODUCTS
#endif

#if defined(PAIR_PRODUCTS)
using Factor = bf16;

inline Row add_pairs(Row sum, Words pair, Words line) {
#if defined(__AVX512BF16__)
  return _mm512_dpbf16_ps(sum, (__m512bh)pair, (__m512bh)line);
#else
  return (Row)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)pair, (bfloat16x8_t)line);
#endif
}

inline void store_factors(Factor* to, Row values) { store_bf16(to, values); }
#else
using Factor = float;

inline void store_factors(Factor* to, Row values) { store(to, values); }
#endif

constexpr int VECTORS = ROWS / LANES;  // of a line

// As many rows as the registers hold sums of, beside what is multiplied: 32 vectors, or 16.
#if defined(__AVX512F__)
constexpr int SUM_ROWS = 12, SUM_VECTORS = 24;
#elif defined(__AVX2__)
constexpr int SUM_ROWS = 6, SUM_VECTORS = 12;
#else
constexpr int SUM_ROWS = 6, SUM_VECTORS = 24;
#endif

// Of COUNT rows with the lines of WIDTH tiles side by side.
template <int COUNT, int WIDTH>
struct Sums {
  static constexpr int ACROSS = WIDTH * VECTORS;
  Row of[COUNT][ACROSS];

  void begin() {
#pragma GCC unroll 16
    for (int row = 0; row < COUNT; row++)
#pragma GCC unroll 16
      for (int i = 0; i < ACROSS; i++) of[row][i] = Row{};
  }

  // From and to rows `stride` floats apart.
  void load(const float* from, int64_t stride) {
#pragma GCC unroll 16
    for (int row = 0; row < COUNT; row++)
#pragma GCC unroll 16
      for (int i = 0; i < ACROSS; i++) of[row][i] = load_row(from + row * stride + i * LANES);
  }
  void store(float* to, int64_t stride) const {
#pragma GCC unroll 16
    for (int row = 0; row < COUNT; row++)
#pragma GCC unroll 16
      for (int i = 0; i < ACROSS; i++) ::store(to + row * stride + i * LANES, of[row][i]);
  }

  // Adds rows[COUNT, 2 * pairs], `stride` apart, times as many lines of each tile; tiles are `apart` numbers apart.
  // fetch() is called for each pair.
  template <class Fetch>
  void add(const Factor* rows, int64_t stride, const bf16* lines, int64_t apart, int64_t pairs, const Fetch& fetch) {
    for (int64_t pair = 0; pair < pairs; pair++, rows += 2, lines += LINE) {
      fetch();
      Words line[ACROSS];
#pragma GCC unroll 16
      for (int i = 0; i < ACROSS; i++)
        line[i] = ::load<Words>(lines + i / VECTORS * apart + i % VECTORS * 2 * LANES);
#if defined(PAIR_PRODUCTS)
#pragma GCC unroll 16
      for (int row = 0; row < COUNT; row++) {
        uint32_t two;
        std::memcpy(&two, rows + row * stride, sizeof two);
        const Words both = two - Words{};
#pragma GCC unroll 16
        for (int i = 0; i < ACROSS; i++) of[row][i] = add_pairs(of[row][i], both, line[i]);
      }
#else
#pragma GCC unroll 16
      for (int row = 0; row < COUNT; row++) {
        const Row even = all(rows[row * stride]);
#pragma GCC unroll 16
        for (int i = 0; i < ACROSS; i++) of[row][i] = fma(even, (Row)(line[i] << 16), of[row][i]);
      }
#pragma GCC unroll 16
      for (int row = 0; row < COUNT; row++) {
        const Row odd = all(rows[row * stride + 1]);
#pragma GCC unroll 16
        for (int i = 0; i < ACROSS; i++) of[row][i] = fma(odd, (Row)(line[i] & 0xffff0000u), of[row][i]);
      }
#endif
    }
  }
  // Adds a pair of inputs of each row times a vector of a line to the first sums.
  void add_part(const Factor* rows, int64_t stride, Words line) {
#pragma GCC unroll 16
    for (int row = 0; row < COUNT; row++) {
#if defined(PAIR_PRODUCTS)
      uint32_t two;
      std::memcpy(&two, rows + row * stride, sizeof two);
      of[row][0] = add_pairs(of[row][0], two - Words{}, line);
#else
      of[row][0] = fma(all(rows[row * stride]), (Row)(line << 16), of[row][0]);
      of[row][0] = fma(all(rows[row * stride + 1]), (Row)(line & 0xffff0000u), of[row][0]);
#endif
    }
  }
  void add(const Factor* rows, int64_t stride, const bf16* lines, int64_t apart, int64_t pairs) {
    add(rows, stride, lines, apart, pairs, [] {});
  }
};

// Calls run with rows, 1..SUM_ROWS, as a constant.
template <int COUNT = SUM_ROWS, class Run>
inline void with_rows(int64_t rows, const Run& run) {
  if constexpr (COUNT > 1)
    if (rows < COUNT) return with_rows<COUNT - 1>(rows, run);
  run(std::integral_constant<int, COUNT>());
}

// Tiles, a power of two and at most `most`, whose sums for COUNT rows the registers hold.
template <int COUNT>
constexpr int tiles_at_once(int most) {
  while (most > 1 && most * COUNT * VECTORS > SUM_VECTORS) most /= 2;
  return most;
}
