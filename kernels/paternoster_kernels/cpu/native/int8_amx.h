// The inner part of int8_matmul on AMX.
#pragma once
#include <algorithm>

#include "tiles.h"

constexpr int OFFSET = 0;  // what is added to quantized rows

inline int64_t rows_at_once(int64_t left) { return std::min<int64_t>(left, 2 * ROWS); }

// By every thread, before and after.
inline void begin() { _tile_loadconfig(&TILES); }
inline void end() { _tile_release(); }

// sums[32, 32] of one tile of rows, or two, with 32 outputs.
template <bool TWO>
void multiply_tiles(const int8_t* x, const int8_t* packed, int64_t inputs, int32_t (*sums)[2 * ROWS]) {
  constexpr int64_t stride = sizeof sums[0];
  const int8_t* other = packed + inputs * ROWS;
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (TWO) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < inputs; i += LINE_INT8) {
    _tile_loadd(4, packed + i * ROWS, LINE_INT8);
    _tile_loadd(5, other + i * ROWS, LINE_INT8);
    _tile_loadd(6, x + i, inputs);
    _tile_dpbssd(0, 6, 4);
    _tile_dpbssd(1, 6, 5);
    if constexpr (TWO) {
      _tile_loadd(7, x + ROWS * inputs + i, inputs);
      _tile_dpbssd(2, 7, 4);
      _tile_dpbssd(3, 7, 5);
    }
  }
  _tile_stored(0, sums[0], stride);
  _tile_stored(1, sums[0] + ROWS, stride);
  if constexpr (TWO) {
    _tile_stored(2, sums[ROWS], stride);
    _tile_stored(3, sums[ROWS] + ROWS, stride);
  }
}

inline void multiply(int64_t rows, const int8_t* x, const int8_t* packed, int64_t inputs, int32_t (*sums)[2 * ROWS]) {
  (rows > ROWS ? multiply_tiles<true> : multiply_tiles<false>)(x, packed, inputs, sums);
}
