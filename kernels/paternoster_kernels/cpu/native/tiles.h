// What the right operands of products lie in, whatever multiplies them: tiles of 1 KiB, 16 lines of 64 bytes. A line has
// two bfloat16 inputs, or four int8 ones, of each of 16 outputs.
#pragma once
#include <cstdint>

constexpr int ROWS = 16;                // lines of a tile, and outputs of a line
constexpr int64_t LINE = 2 * ROWS;      // bfloat16 numbers of a line
constexpr int64_t TILE = ROWS * LINE;   // and of a tile
constexpr int64_t LINE_INT8 = 4 * ROWS;  // int8 numbers of a line

#if defined(__AMX_TILE__)
#include <immintrin.h>

struct TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS};
};
// In static storage: gcc 12 takes the intrinsic to read 8 bytes and drops other stores to a local one.
alignas(64) static const TileConfig TILES;
#endif
