// Keys and values in the paged cache, as tiles that are the right operands of products.
//
// A page is the block_size tokens of one block and key head. Each 32 of them, a step, lie in one piece: first the keys,
// tiles of 16 tokens and 32 dimensions, [2][head_dim / 32][16 pairs of dimensions][16 tokens][2], then the values, tiles
// of 32 tokens and 16 dimensions, [head_dim / 16][16 pairs of tokens][16 dimensions][2].
#pragma once
#include "tiles.h"
#include "vectors.h"

constexpr int STEP = LINE;  // tokens, or dimensions, of a tile

struct Pages {
  bf16* data;
  int64_t kv_heads, block_size, head_dim;

  // Of the step that the token at this offset of the block is in.
  bf16* keys(int64_t block, int64_t kv_head, int64_t offset) const {
    return data + ((block * kv_heads + kv_head) * block_size + offset / STEP * STEP) * 2 * head_dim;
  }
  bf16* values(int64_t block, int64_t kv_head, int64_t offset) const {
    return keys(block, kv_head, offset) + STEP * head_dim;
  }

  void store(const bf16* key, const bf16* value, int64_t block, int64_t kv_head, int64_t offset) const {
    const int64_t token = offset % STEP;
    uint32_t* to = (uint32_t*)(keys(block, kv_head, offset) + token / ROWS * ROWS * head_dim) + token % ROWS;
    for (int64_t pair = 0; pair < head_dim / 2; pair++) to[pair * ROWS] = ((const uint32_t*)key)[pair];
    bf16* row = values(block, kv_head, offset) + token / 2 * STEP;
    const int odd = token % 2;
    // The other token of the pair may be stored by another thread meanwhile, so nothing is written in its place.
    for (int64_t i = 0; i < head_dim; i += ROWS, row += TILE) {
#if defined(__AVX512BW__)
      const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(value + i)));
      _mm512_mask_storeu_epi16(row, 0x55555555u << odd, _mm512_slli_epi32(wide, 16 * odd));
#else
      for (int64_t lane = 0; lane < ROWS; lane++) row[2 * lane + odd] = value[i + lane];
#endif
    }
  }
};
