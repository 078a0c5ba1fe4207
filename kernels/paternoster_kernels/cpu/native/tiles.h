// AMX: eight tiles of 16 rows of 64 bytes.
#pragma once
#include <immintrin.h>

#include <cstdint>

constexpr int ROWS = 16;  // rows of a tile

struct TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS};
};
// In static storage: gcc 12 takes the intrinsic to read 8 bytes and drops other stores to a local one.
alignas(64) static const TileConfig TILES;
