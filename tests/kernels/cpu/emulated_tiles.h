// AMX's tiles in plain C++, put before the sources so that what is written for AMX runs on a processor without it.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define __AMX_TILE__ 1
#define __AMX_BF16__ 1
#define __AMX_INT8__ 1

struct EmulatedTiles {
  uint8_t bytes[8][16][64];
  uint8_t config[64];

  int rows(int tile) const { return config[48 + tile]; }
};
inline thread_local EmulatedTiles emulated;

inline void emulated_config(const void* config) { std::memcpy(emulated.config, config, 64); }
inline void emulated_zero(int tile) { std::memset(emulated.bytes[tile], 0, sizeof emulated.bytes[tile]); }

inline void emulated_load(int tile, const void* from, int64_t stride) {
  emulated_zero(tile);
  for (int row = 0; row < emulated.rows(tile); row++)
    std::memcpy(emulated.bytes[tile][row], (const char*)from + row * stride, 64);
}

inline void emulated_store(int tile, void* to, int64_t stride) {
  for (int row = 0; row < emulated.rows(tile); row++)
    std::memcpy((char*)to + row * stride, emulated.bytes[tile][row], 64);
}

// sums[row][n] += the products of `Number` (group of a row, entry of line) over all lines.
template <class Sum, class Number, class Widen>
inline void emulated_product(int to, int left, int right, Widen widen) {
  constexpr int GROUP = 4 / sizeof(Number);
  for (int row = 0; row < emulated.rows(to); row++)
    for (int line = 0; line < 16; line++)
      for (int n = 0; n < 16; n++)
        for (int j = 0; j < GROUP; j++) {
          Sum sum;
          Number a, b;
          std::memcpy(&sum, &emulated.bytes[to][row][4 * n], 4);
          std::memcpy(&a, &emulated.bytes[left][row][(GROUP * line + j) * sizeof(Number)], sizeof a);
          std::memcpy(&b, &emulated.bytes[right][line][(GROUP * n + j) * sizeof(Number)], sizeof b);
          sum += widen(a) * widen(b);
          std::memcpy(&emulated.bytes[to][row][4 * n], &sum, 4);
        }
}

inline float emulated_float(uint16_t number) {
  const uint32_t bits = uint32_t(number) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#define _tile_loadconfig(config) emulated_config(config)
#define _tile_release() ((void)0)
#define _tile_loadd(tile, from, stride) emulated_load(tile, from, stride)
#define _tile_stored(tile, to, stride) emulated_store(tile, to, stride)
#define _tile_zero(tile) emulated_zero(tile)
#define _tile_dpbf16ps(to, left, right) (emulated_product<float, uint16_t>(to, left, right, emulated_float))
#define _tile_dpbssd(to, left, right) \
  (emulated_product<int32_t, int8_t>(to, left, right, [](int8_t number) { return int32_t(number); }))
