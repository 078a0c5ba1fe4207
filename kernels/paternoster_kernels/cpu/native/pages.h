// Keys and values in the paged cache, as tiles that are the right operands of products.
//
// A page is the block_size tokens of one block and key head. Each 32 of them, a step, lie in one piece: first the keys,
// tiles of 16 tokens and 32 dimensions, [2][head_dim / 32][16 pairs of dimensions][16 tokens][2], then the values, tiles
// of 32 tokens and 16 dimensions, [head_dim / 16][16 pairs of tokens][16 dimensions][2]. Numbers are bfloat16, or int8
// with scales behind the page's steps, [2][block_size] in bfloat16: of each token's key, and of its value.
//
// Where a key or value is not finite, the key is stored as NaN and the value as 0: attention that sees the token is NaN,
// and attention that does not see it, and so weighs its value with 0, stays finite.
#pragma once
#include <algorithm>

#include "tiles.h"
#include "vectors.h"

constexpr int STEP = LINE;  // tokens, or dimensions, of a tile
constexpr int MAX_DIM = 256;

struct Pages {
  void* data;
  int64_t kv_heads, block_size, head_dim;
  bool quantized;

  // The numbers of the step that the token at this offset of the block is in: keys first, then values.
  template <class Number>
  Number* step(int64_t block, int64_t kv_head, int64_t offset) const {
    return (Number*)page(block, kv_head) + offset / STEP * STEP * 2 * head_dim;
  }
  // Of the token's key; its value's is block_size further.
  bf16* scale(int64_t block, int64_t kv_head, int64_t offset) const {
    return (bf16*)(page(block, kv_head) + block_size * 2 * head_dim) + offset;
  }

  void store(const bf16* key, const bf16* value, int64_t block, int64_t kv_head, int64_t offset) const {
    Ints sizes{};
    for (int64_t i = 0; i < head_dim; i += LANES)
      sizes = largest_size(largest_size(sizes, load_bf16(key + i)), load_bf16(value + i));
    if (any(sizes >= INFINITE_SIZE)) {
      alignas(64) static const bf16 zeros[MAX_DIM] = {};
      bf16 none[MAX_DIM];
      std::fill(none, none + head_dim, bf16(0x7fc0));
      return store_finite(none, zeros, block, kv_head, offset);
    }
    store_finite(key, value, block, kv_head, offset);
  }

 private:
  void store_finite(const bf16* key, const bf16* value, int64_t block, int64_t kv_head, int64_t offset) const {
    if (!quantized) return place<uint32_t>(key, value, step<bf16>(block, kv_head, offset), offset % STEP);
    int8_t numbers[2][MAX_DIM];
    bf16* scales = scale(block, kv_head, offset);
    scales[0] = quantize(key, numbers[0]);
    scales[block_size] = quantize(value, numbers[1]);
    place<uint16_t>(numbers[0], numbers[1], step<int8_t>(block, kv_head, offset), offset % STEP);
  }

  uint8_t* page(int64_t block, int64_t kv_head) const {
    const int64_t token = quantized ? 2 * head_dim + 2 * sizeof(bf16) : 2 * head_dim * sizeof(bf16);
    return (uint8_t*)data + (block * kv_heads + kv_head) * block_size * token;
  }

  template <class Pair, class Number>
  void place(const Number* key, const Number* value, Number* step, int64_t token) const {
    Number* to = step + token / ROWS * ROWS * head_dim + token % ROWS * 2;
    for (int64_t i = 0; i < head_dim; i += 2, to += LINE) std::memcpy(to, key + i, sizeof(Pair));
    Number* row = step + STEP * head_dim + token / 2 * STEP;
    const int odd = token % 2;
    // The other token of the pair may be stored by another thread meanwhile, so nothing is written in its place.
    for (int64_t i = 0; i < head_dim; i += ROWS, row += TILE) {
#if defined(__AVX512BW__)
      if constexpr (sizeof(Number) == 2) {
        const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(value + i)));
        _mm512_mask_storeu_epi16(row, 0x55555555u << odd, _mm512_slli_epi32(wide, 16 * odd));
        continue;
      }
#endif
      for (int64_t lane = 0; lane < ROWS; lane++) row[2 * lane + odd] = value[i + lane];
    }
  }

  // The numbers of a head over a scale that makes the largest 127; returns the scale.
  bf16 quantize(const bf16* from, int8_t* to) const {
    Ints most{};
    for (int64_t i = 0; i < head_dim; i += LANES) most = largest_size(most, load_bf16(from + i));
    bf16 stored;
    store_one(&stored, highest_size(most) / 127.0f);
    const float scale = load_one(&stored);
    const Row over = all(scale == 0.0f ? 1.0f : scale);
    // A scale that was rounded down leads beyond 127.
    for (int64_t i = 0; i < head_dim; i += LANES)
      store_int8(to + i, min(all(127.0f), max(all(-127.0f), load_bf16(from + i) / over)));
    return stored;
  }
};
