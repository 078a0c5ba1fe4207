// All layers of a Llama, one operation after another: between calls from outside, what the caller needs has to come back
// into caches that weights have just passed through.
#include "operations.h"

namespace {

struct Matrix {
  const uint8_t* packed;  // as packed_matmul takes them
  const int64_t* strips;
};

struct Layer {
  const bf16 *attention_norm, *mlp_norm;
  Matrix qkv, attention_out, gate_up, down;
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
  const auto multiply = [&](bf16* out, const bf16* x, const Matrix& matrix, int64_t outputs, int64_t inputs, bool gated) {
    packed_matmul(out, x, matrix.packed, matrix.strips, t.count, outputs, inputs, gated, threads);
  };
  const int64_t width = s.heads * s.head_dim, all = width + 2 * s.kv_heads * s.head_dim;
  for (const Layer* layer = layers; layer < layers + s.layers; layer++) {
    // The embeddings are themselves the residual.
    if (layer == layers)
      rms_norm(room->hidden, room->residual, nullptr, layer->attention_norm, t.count, s.hidden, s.eps, threads);
    else
      rms_norm(room->hidden, room->hidden, room->residual, layer->attention_norm, t.count, s.hidden, s.eps, threads);
    multiply(room->qkv, room->hidden, layer->qkv, all, s.hidden, false);
    rope_kv_write(room->qkv, t.positions, t.angles, layer->cache, s.quantized, t.slots, t.count, s.heads, s.kv_heads,
                  s.head_dim, s.head_dim, s.block_size, threads);
    paged_attention(room->mixed, room->qkv, all, layer->cache, s.quantized, s.heads, s.kv_heads, s.head_dim,
                    s.block_size, t.query_starts, t.seq_lens, t.tables, t.table_width, t.sequences, s.scale, 0, 0.0f,
                    nullptr, threads);
    multiply(room->hidden, room->mixed, layer->attention_out, s.hidden, width, false);
    rms_norm(room->hidden, room->hidden, room->residual, layer->mlp_norm, t.count, s.hidden, s.eps, threads);
    multiply(room->gated, room->hidden, layer->gate_up, 2 * s.intermediate, s.hidden, true);
    multiply(room->hidden, room->gated, layer->down, s.hidden, s.intermediate, false);
  }
}
