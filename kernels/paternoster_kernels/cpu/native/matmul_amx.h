// The inner part of packed_matmul on AMX: one or two tiles of rows at once.
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "tiles.h"
#include "upcoming.h"

constexpr int64_t MOST_ROWS = 512;  // rows that pass by the same outputs, kept in the second cache
constexpr int64_t FUSED_ROWS = 0;   // tiles are loaded from memory

// How many rows of `left` are multiplied at once, and how many such parts there are.
inline int64_t passes(int64_t left) { return (left + 2 * ROWS - 1) / (2 * ROWS); }
inline int64_t rows_at_once(int64_t left) { return std::min<int64_t>(left, 2 * ROWS); }

class Multiplier {
 public:
  Multiplier(const bf16* x, int64_t rows, int64_t inputs)
      : x(x), rows(rows), inputs(inputs), whole(rows / ROWS * ROWS) {}

  // By every thread of a team, before rows begin..end.
  void begin(int64_t begin, int64_t end) {
    // Rows that do not fill a tile, and anything after them: what is beyond the last row is summed and not stored.
    static thread_local std::vector<bf16> room;
    room.resize(ROWS * inputs);
    std::memcpy(room.data(), x + whole * inputs, (rows - whole) * inputs * sizeof(bf16));
    last = room.data();
    _tile_loadconfig(&TILES);
  }
  void end() { _tile_release(); }

  // Adds `count` rows, from..from + depth of their inputs, times as many inputs of two tiles of outputs, which are at
  // left and right, to sums, or begins them with the first. near: these weights are still in memory, so they are fetched
  // just before their turn. Sums of whole tiles are stored, whatever `count` is.
  void run(int64_t row, int64_t count, int64_t from, int64_t depth, const bf16* left, const bf16* right, bool near,
           Upcoming& upcoming, float (*sums)[2 * ROWS]) const {
    const bool two = count > ROWS;
    const bf16 *first = tile_at(row) + from, *second = two ? tile_at(row + ROWS) + from : nullptr;
    auto multiplier = from == 0 ? pick<true>(two, near) : pick<false>(two, near);
    multiplier(first, second, inputs, left, right, depth, upcoming, sums);
  }

  void run_blocks(int64_t, int64_t, int64_t, const uint8_t*, const uint8_t*, float (*)[2 * ROWS]) const {}

 private:
  template <bool BEGIN, bool TWO, bool NEAR>
  static void multiply(const bf16* first, const bf16* second, int64_t stride, const bf16* left, const bf16* right,
                       int64_t depth, Upcoming& upcoming, float (*sums)[2 * ROWS]) {
    constexpr int64_t sums_stride = sizeof sums[0];
    if constexpr (BEGIN) {
      _tile_zero(0);
      _tile_zero(1);
      if constexpr (TWO) _tile_zero(2);
      if constexpr (TWO) _tile_zero(3);
    } else {
      _tile_loadd(0, sums[0], sums_stride);
      _tile_loadd(1, sums[0] + ROWS, sums_stride);
      if constexpr (TWO) _tile_loadd(2, sums[ROWS], sums_stride);
      if constexpr (TWO) _tile_loadd(3, sums[ROWS] + ROWS, sums_stride);
    }
    for (int64_t i = 0; i < depth; i += LINE) {
      if constexpr (NEAR) fetch(left + (i + AHEAD * LINE) * ROWS);
      if constexpr (NEAR) fetch(right + (i + AHEAD * LINE) * ROWS);
      upcoming.fetch();
      _tile_loadd(4, left + i * ROWS, 64);
      _tile_loadd(6, first + i, stride * sizeof(bf16));
      _tile_loadd(5, right + i * ROWS, 64);
      _tile_dpbf16ps(0, 6, 4);
      _tile_dpbf16ps(1, 6, 5);
      if constexpr (TWO) {
        _tile_loadd(7, second + i, stride * sizeof(bf16));
        _tile_dpbf16ps(2, 7, 4);
        _tile_dpbf16ps(3, 7, 5);
      }
    }
    _tile_stored(0, sums[0], sums_stride);
    _tile_stored(1, sums[0] + ROWS, sums_stride);
    if constexpr (TWO) _tile_stored(2, sums[ROWS], sums_stride);
    if constexpr (TWO) _tile_stored(3, sums[ROWS] + ROWS, sums_stride);
  }

  using Multiply = void (*)(const bf16*, const bf16*, int64_t, const bf16*, const bf16*, int64_t, Upcoming&,
                            float (*)[2 * ROWS]);
  template <bool BEGIN>
  static Multiply pick(bool two, bool near) {
    return two ? (near ? multiply<BEGIN, true, true> : multiply<BEGIN, true, false>)
               : (near ? multiply<BEGIN, false, true> : multiply<BEGIN, false, false>);
  }

  const bf16* tile_at(int64_t row) const { return row < whole ? x + row * inputs : last; }

  const bf16* x;
  int64_t rows, inputs, whole;
  const bf16* last = nullptr;
};
