// Weights fetched ahead of their turn.
#pragma once
#include "tiles.h"
#include "vectors.h"

constexpr int AHEAD = 8;  // tiles between what is multiplied and what the first cache fetches from memory

// A tile, into the first cache.
inline void fetch(const bf16* tile) {
#pragma GCC unroll 16
  for (int line = 0; line < ROWS; line++) __builtin_prefetch(tile + line * LINE, 0, 3);
}

// The weights of the next outputs, fetched into the second cache a few lines at a time while rows pass by these.
struct Upcoming {
  const char* next;
  int64_t lines;

  void fetch() {
    for (int64_t line = 0; line < lines; line++) __builtin_prefetch(next + line * 64, 0, 2);
    next += lines * 64;
  }
};
