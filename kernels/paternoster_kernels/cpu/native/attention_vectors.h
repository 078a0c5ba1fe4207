// The products of attention on vectors.
#pragma once
#include "sums.h"

// Calls run with dim, as a constant where it is the size of most models' heads: with few rows the loop over a head that
// small is a fifth slower without.
template <class Run>
inline void with_dim(int64_t dim, const Run& run) {
  if (dim == 64) return run(std::integral_constant<int64_t, 64>());
  if (dim == 128) return run(std::integral_constant<int64_t, 128>());
  run(dim);
}

constexpr int QUERIES = SUM_ROWS;  // queries, rows of (token, head), that are multiplied at once

class Products {
 public:
  // chunk: tokens that rows of scores and weights have; dim: numbers of a head, a multiple of 16.
  Products(int64_t chunk, int64_t dim) : chunk(chunk), dim(dim) {}

  // Numbers from one query to the next.
  static int64_t query_stride(int64_t dim) { return dim; }

  // Before products with so many queries.
  void begin(int queries) { rows = queries; }

  // scores[queries, chunk] of `count` tokens, in whole steps; keys_at(i) is the step that token i begins, whose values
  // lie behind its keys.
  template <class KeysAt>
  void score(const Factor* queries, float* scores, int64_t count, const KeysAt& keys_at) const {
    with_rows(rows, [&](auto constant) {
      with_dim(dim, [&](auto size) { score_rows<decltype(constant)::value>(queries, scores, count, size, keys_at); });
    });
  }

  // Adds weights[queries, chunk] x values to out[queries, dim], or begins with them.
  template <class ValuesAt>
  void mix(const Factor* weights, float* out, int64_t count, bool first, const ValuesAt& values_at) const {
    with_rows(rows, [&](auto constant) {
      constexpr int COUNT = decltype(constant)::value, WIDTH = tiles_at_once<COUNT>(4);
      const int64_t tiles = dim / ROWS, whole = tiles / WIDTH * WIDTH;
      for (int64_t tile = 0; tile < whole; tile += WIDTH)
        mix_tiles<COUNT, WIDTH>(weights, out, count, first, tile, values_at);
      for (int64_t tile = whole; tile < tiles; tile++)
        mix_tiles<COUNT, 1>(weights, out, count, first, tile, values_at);
    });
  }

 private:
  template <int COUNT, class Dim, class KeysAt>
  void score_rows(const Factor* queries, float* scores, int64_t count, Dim dim, const KeysAt& keys_at) const {
    constexpr int WIDTH = tiles_at_once<COUNT>(2);
    const bf16* next = keys_at(0);
    for (int64_t i = 0; i < count; i += LINE) {
      const bf16* keys = next;
      if (i + LINE < count) next = keys_at(i + LINE);
      for (int tile = 0; tile < 2; tile += WIDTH) {
        Sums<COUNT, WIDTH> total;
        total.begin();
        // What single tokens read comes from memory, and the processor looks ahead within 4 KiB only. Of this step's
        // values and the next one's keys as much as of these keys.
        int64_t at = tile * dim * ROWS;
        total.add(queries, dim, keys + at, dim * ROWS, dim / 2, [&] {
          for (int line = 0; line < WIDTH; line++, at += LINE) {
            __builtin_prefetch(next + at, 0, 2);
            __builtin_prefetch(keys + LINE * dim + at, 0, 2);
          }
        });
        total.store(scores + i + tile * ROWS, chunk);
      }
    }
  }

  template <int COUNT, int WIDTH, class ValuesAt>
  void mix_tiles(const Factor* weights, float* out, int64_t count, bool first, int64_t tile,
                 const ValuesAt& values_at) const {
    Sums<COUNT, WIDTH> total;
    if (first)
      total.begin();
    else
      total.load(out + tile * ROWS, dim);
    for (int64_t i = 0; i < count; i += LINE) total.add(weights + i, chunk, values_at(i) + tile * TILE, TILE, ROWS);
    total.store(out + tile * ROWS, dim);
  }

  const int64_t chunk, dim;
  int rows = 0;
};
