// All layers of a decoder, one operation after another: between calls from outside, what the caller needs has to come back
// into caches that weights have just passed through.
#include "operations.h"

namespace {

struct Matrix {
  const uint8_t* packed;  // as packed_matmul takes them
  const int64_t* strips;
  const bf16* bias;
};

// What a layer has not is null, or 0 for a window.
struct Layer {
  const bf16 *attention_norm, *query_norm, *key_norm, *sinks, *attention_post_norm, *mlp_norm, *mlp_post_norm;
  Matrix qkv, attention_out, gate_up, down;
  const float* rotary;
  void* cache;
  int64_t rotary_dim, group, window;
};

// head_norms: whether each head is normed by itself, or all of them together. softcap: 0 for none.
struct Shape {
  int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, block_size, quantized, gate, head_norms;
  float eps, scale, softcap, residual_scale;
};

// Where the sequences of a pass are in the blocks of a group of layers.
struct Group {
  const int64_t* slots;
  const int32_t *query_starts, *seq_lens, *tables;
  int64_t table_width, sequences;
};

struct Tokens {
  int64_t count;
  const int64_t* positions;
  const Group* groups;
};

// For count tokens each: residual and hidden[hidden], qkv[heads + 2 * kv_heads, head_dim], mixed[heads, head_dim], and
// gated[intermediate].
struct Room {
  bf16 *residual, *hidden, *qkv, *mixed, *gated;
};

class Pass {
 public:
  Pass(const Shape& shape, const Tokens& tokens, const Room& room, int threads)
      : s(shape), t(tokens), room(room), threads(threads) {}

  void run(const Layer& layer) {
    const int64_t width = s.heads * s.head_dim, all = width + 2 * s.kv_heads * s.head_dim;
    const Group& group = t.groups[layer.group];
    multiply(room.qkv, read(layer.attention_norm), layer.qkv, all, s.hidden, NO_GATE);
    if (layer.query_norm != nullptr) {
      norm_heads(room.qkv, layer.query_norm, all, s.heads);
      norm_heads(room.qkv + width, layer.key_norm, all, s.kv_heads);
    }
    rope_kv_write(room.qkv, t.positions, layer.rotary, layer.cache, s.quantized, group.slots, t.count, s.heads,
                  s.kv_heads, s.head_dim, layer.rotary_dim, s.block_size, threads);
    paged_attention(room.mixed, room.qkv, all, layer.cache, s.quantized, s.heads, s.kv_heads, s.head_dim, s.block_size,
                    group.query_starts, group.seq_lens, group.tables, group.table_width, group.sequences, s.scale,
                    layer.window, s.softcap, layer.sinks, threads);
    multiply(room.hidden, room.mixed, layer.attention_out, s.hidden, width, NO_GATE);
    finish(layer.attention_post_norm);
    multiply(room.gated, read(layer.mlp_norm), layer.gate_up, 2 * s.intermediate, s.hidden, s.gate);
    multiply(room.hidden, room.gated, layer.down, s.hidden, s.intermediate, NO_GATE);
    finish(layer.mlp_post_norm);
  }

 private:
  // What attention or MLP is given, once what the one before put out is in the residual.
  const bf16* read(const bf16* norm) {
    const bool begins = !begun;
    begun = true;
    // The embeddings are themselves the residual.
    const bf16* from = begins ? room.residual : room.hidden;
    if (norm != nullptr) {
      rms_norm(room.hidden, from, begins ? nullptr : room.residual, norm, t.count, s.hidden, s.eps, threads);
      return room.hidden;
    }
    for (int64_t i = 0; !begins && i < t.count * s.hidden; i += LANES)
      store_bf16(room.residual + i, load_bf16(room.residual + i) + load_bf16(from + i));
    return room.residual;
  }

  // What attention or MLP put out becomes what it adds to the residual.
  void finish(const bf16* norm) {
    if (norm != nullptr) rms_norm(room.hidden, room.hidden, nullptr, norm, t.count, s.hidden, s.eps, threads);
    for (int64_t i = 0; s.residual_scale != 1.0f && i < t.count * s.hidden; i += LANES)
      store_bf16(room.hidden + i, load_bf16(room.hidden + i) * s.residual_scale);
  }

  void norm_heads(bf16* from, const bf16* weight, int64_t stride, int64_t heads) {
    const int64_t parts = s.head_norms ? heads : 1;
    norm_parts(from, weight, t.count, stride, parts, heads * s.head_dim / parts, s.eps, threads);
  }

  void multiply(bf16* out, const bf16* x, const Matrix& matrix, int64_t outputs, int64_t inputs, int gate) {
    packed_matmul(out, x, matrix.packed, matrix.strips, matrix.bias, t.count, outputs, inputs, gate, threads);
  }

  const Shape& s;
  const Tokens& t;
  const Room& room;
  const int threads;
  bool begun = false;
};

}  // namespace

// residual: the embeddings, and afterwards what the last norm adds to hidden, which is what the last layer puts out.
extern "C" void decoder_layers(const Layer* layers, const Shape* shape, const Tokens* tokens, const Room* room,
                               int threads) {
  Pass pass(*shape, *tokens, *room, threads);
  for (const Layer* layer = layers; layer < layers + shape->layers; layer++) pass.run(*layer);
}
