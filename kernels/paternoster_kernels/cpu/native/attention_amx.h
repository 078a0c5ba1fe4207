// The products of attention on AMX.
#pragma once
#include "tiles.h"
#include "vectors.h"

using Factor = bf16;  // what queries and weights are multiplied as

inline void store_factors(Factor* to, Row values) { store_bf16(to, values); }

constexpr int QUERIES = ROWS;  // queries, rows of (token, head), that are multiplied at once

class Products {
 public:
  // chunk: tokens that rows of scores and weights have; dim: numbers of a head, a multiple of 16.
  Products(int64_t chunk, int64_t dim) : chunk(chunk), dim(dim) {}
  ~Products() { _tile_release(); }

  // Numbers from one query to the next: whole tiles.
  static int64_t query_stride(int64_t dim) { return (dim + LINE - 1) / LINE * LINE; }

  // Before products with so many queries: single tokens have few, and their products take as much less time.
  void begin(int queries) {
    if (queries == configured) return;
    for (int tile = 0; tile < RIGHT; tile++) config.rows[tile] = queries;
    _tile_loadconfig(&config);
    configured = queries;
  }

  // scores[queries, chunk] of `count` tokens, in whole steps; keys_at(i) is the step that token i begins.
  template <class KeysAt>
  void score(const Factor* queries, float* scores, int64_t count, const KeysAt& keys_at) {
    const int64_t stride = query_stride(dim) * sizeof(bf16), whole = dim / LINE;
    for (int64_t i = 0; i < count; i += LINE) {
      const bf16* keys = keys_at(i);
      _tile_zero(0);
      _tile_zero(1);
      for (int64_t part = 0; part < whole; part++) {
        _tile_loadd(4, queries + part * LINE, stride);
        _tile_loadd(5, keys + part * TILE, 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, keys + dim * ROWS + part * TILE, 64);
        _tile_dpbf16ps(1, 4, 6);
      }
      if (dim % LINE) {
        // Half a tile, its other lines zero: what follows in the cache may be no number.
        std::memcpy(half[0], keys + whole * TILE, TILE / 2 * sizeof(bf16));
        std::memcpy(half[1], keys + dim * ROWS + whole * TILE, TILE / 2 * sizeof(bf16));
        _tile_loadd(4, queries + whole * LINE, stride);
        _tile_loadd(5, half[0], 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, half[1], 64);
        _tile_dpbf16ps(1, 4, 6);
      }
      _tile_stored(0, scores + i, chunk * sizeof(float));
      _tile_stored(1, scores + i + ROWS, chunk * sizeof(float));
    }
  }

  // Adds weights[queries, chunk] x values to out[queries, dim], or begins with them.
  template <class ValuesAt>
  void mix(const Factor* weights, float* out, int64_t count, bool first, const ValuesAt& values_at) const {
    const int64_t tiles = dim / ROWS, stride = dim * sizeof(float);
    int64_t part = 0;
    for (; part + 4 <= tiles; part += 4, out += 4 * ROWS) {
      if (first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      } else {
        _tile_loadd(0, out, stride);
        _tile_loadd(1, out + ROWS, stride);
        _tile_loadd(2, out + 2 * ROWS, stride);
        _tile_loadd(3, out + 3 * ROWS, stride);
      }
      for (int64_t i = 0; i < count; i += LINE) {
        const bf16* values = values_at(i) + part * TILE;
        _tile_loadd(4, weights + i, chunk * sizeof(bf16));
        _tile_loadd(5, values, 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, values + TILE, 64);
        _tile_dpbf16ps(1, 4, 6);
        _tile_loadd(5, values + 2 * TILE, 64);
        _tile_dpbf16ps(2, 4, 5);
        _tile_loadd(6, values + 3 * TILE, 64);
        _tile_dpbf16ps(3, 4, 6);
      }
      _tile_stored(0, out, stride);
      _tile_stored(1, out + ROWS, stride);
      _tile_stored(2, out + 2 * ROWS, stride);
      _tile_stored(3, out + 3 * ROWS, stride);
    }
    for (; part < tiles; part++, out += ROWS) {
      if (first)
        _tile_zero(0);
      else
        _tile_loadd(0, out, stride);
      for (int64_t i = 0; i < count; i += LINE) {
        _tile_loadd(4, weights + i, chunk * sizeof(bf16));
        _tile_loadd(5, values_at(i) + part * TILE, 64);
        _tile_dpbf16ps(0, 4, 5);
      }
      _tile_stored(0, out, stride);
    }
  }

 private:
  static constexpr int RIGHT = 5;  // the first tile of those that hold keys or values; those before it hold rows

  const int64_t chunk, dim;
  alignas(64) bf16 half[2][TILE] = {};
  // In static storage, as TILES is.
  static inline thread_local TileConfig config;
  int configured = 0;
};
