// All layers of a Llama, one operation after another: between calls from outside, what the caller needs has to come back
// into caches that weights have just passed through.
#include "operations.h"

namespace {

struct Layer {
  const bf16 *attention_norm, *qkv, *attention_out, *mlp_norm, *gate_up, *down;
  void* cache;
};

struct Shape {
  int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, block_size, quantized;
  float eps, scale;
};

// Tokens of a pass, and where their sequences are.
struct Tokens {
  int64_t count;
  const int64_t *positions, *slots;
  const int32_t *query_starts, *seq_lens, *tables;
  int64_t table_width, sequences;
  const float* angles;
};

// For count tokens each: residual and hidden[hidden], qkv[heads + 2 * kv_heads, head_dim], mixed[heads, head_dim], and
// gated[intermediate].
struct Room {
  bf16 *residual, *hidden, *qkv, *mixed, *gated;
};

}  // namespace

// residual: the embeddings, and afterwards what the last norm adds to hidden, which is what the last layer puts out.
extern "C" void decoder_layers(const Layer* layers, const Shape* shape, const Tokens* tokens, const Room* room,
                               int threads) {
  const Shape& s = *shape;
  const Tokens& t = *tokens;
  const int64_t width = s.heads * s.head_dim, all = width + 2 * s.kv_heads * s.head_dim;
  for (const Layer* layer = layers; layer < layers + s.layers; layer++) {
    // The embeddings are themselves the residual.
    if (layer == layers)
      rms_norm(room->hidden, room->residual, nullptr, layer->attention_norm, t.count, s.hidden, s.eps, threads);
    else
      rms_norm(room->hidden, room->hidden, room->residual, layer->attention_norm, t.count, s.hidden, s.eps, threads);
    packed_matmul(room->qkv, room->hidden, layer->qkv, t.count, all, s.hidden, false, threads);
    rope_kv_write(room->qkv, t.positions, t.angles, layer->cache, s.quantized, t.slots, t.count, s.heads, s.kv_heads,
                  s.head_dim, s.head_dim, s.block_size, threads);
    paged_attention(room->mixed, room->qkv, all, layer->cache, s.quantized, s.heads, s.kv_heads, s.head_dim,
                    s.block_size, t.query_starts, t.seq_lens, t.tables, t.table_width, t.sequences, s.scale, 0, 0.0f,
                    nullptr, threads);
    packed_matmul(room->hidden, room->mixed, layer->attention_out, t.count, s.hidden, width, false, threads);
    rms_norm(room->hidden, room->hidden, room->residual, layer->mlp_norm, t.count, s.hidden, s.eps, threads);
    packed_matmul(room->gated, room->hidden, layer->gate_up, t.count, 2 * s.intermediate, s.hidden, true, threads);
    packed_matmul(room->hidden, room->gated, layer->down, t.count, s.hidden, s.intermediate, false, threads);
  }
}
