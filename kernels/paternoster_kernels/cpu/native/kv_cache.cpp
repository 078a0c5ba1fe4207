// Keys and values into the pages of the cache, as they are or after the rotary embedding.
#include "operations.h"
#include "pages.h"

namespace {

void rotate(bf16* head, const float* angles, int64_t half) {
  int64_t i = 0;
  for (; i + LANES <= half; i += LANES) {
    const Row cos = load_row(angles + i), sin = load_row(angles + half + i);
    const Row low = load_bf16(head + i), high = load_bf16(head + half + i);
    store_bf16(head + i, low * cos - high * sin);
    store_bf16(head + half + i, high * cos + low * sin);
  }
  for (; i < half; i++) {
    const float cos = angles[i], sin = angles[half + i], low = load_one(head + i), high = load_one(head + half + i);
    store_one(head + i, low * cos - high * sin);
    store_one(head + half + i, high * cos + low * sin);
  }
}

// Keys of one token, its values after them.
void store(const Pages& pages, const bf16* keys, int64_t slot) {
  const int64_t block = slot / pages.block_size, offset = slot % pages.block_size;
  for (int64_t head = 0; head < pages.kv_heads; head++, keys += pages.head_dim)
    pages.store(keys, keys + pages.kv_heads * pages.head_dim, block, head, offset);
}

}  // namespace

extern "C" {

// The last 2 * kv_heads of the heads that each token has in rows[tokens, heads, head_dim], keys before values, into the
// pages of cache. Nothing for a token with a slot below 0.
void kv_write(const bf16* rows, int64_t heads, void* cache, int quantized, const int64_t* slots, int64_t tokens,
              int64_t kv_heads, int64_t head_dim, int64_t block_size, int threads) {
  const Pages pages{cache, kv_heads, block_size, head_dim, quantized != 0};
  const int64_t width = heads * head_dim;
#pragma omp parallel for num_threads(threads) if (tokens * width > PARALLEL_ELEMENTS)
  for (int64_t token = 0; token < tokens; token++) {
    if (slots[token] >= 0) store(pages, rows + token * width + (heads - 2 * kv_heads) * head_dim, slots[token]);
  }
}

// Rotates the first rotary_dim numbers of the queries and keys of qkv[tokens, heads + 2 * kv_heads, head_dim] in place,
// and stores its keys and values. angles[length, rotary_dim]: cosines, then sines. rotary_dim: 0 for none.
void rope_kv_write(bf16* qkv, const int64_t* positions, const float* angles, void* cache, int quantized,
                   const int64_t* slots, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim,
                   int64_t rotary_dim, int64_t block_size, int threads) {
  const Pages pages{cache, kv_heads, block_size, head_dim, quantized != 0};
  const int64_t width = (heads + 2 * kv_heads) * head_dim;
#pragma omp parallel for num_threads(threads) if (tokens * width > PARALLEL_ELEMENTS)
  for (int64_t token = 0; token < tokens; token++) {
    if (slots[token] < 0) continue;
    bf16* row = qkv + token * width;
    for (int64_t head = 0; rotary_dim > 0 && head < heads + kv_heads; head++)
      rotate(row + head * head_dim, angles + positions[token] * rotary_dim, rotary_dim / 2);
    store(pages, row + heads * head_dim, slots[token]);
  }
}

}  // extern "C"
