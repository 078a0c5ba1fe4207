// All layers of a decoder, one operation after another: between calls from outside, what the caller needs has to come back
// into caches that weights have just passed through.
#include <initializer_list>

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

// lora: null where no token has an adapter.
struct Tokens {
  int64_t count;
  const int64_t* positions;
  const Group* groups;
  const LoraBatch* lora;
};

// For count tokens each: residual and hidden[hidden], qkv[heads + 2 * kv_heads, head_dim], mixed[heads, head_dim],
// gated[intermediate], and with adapters in_turns[2 * intermediate].
struct Room {
  bf16 *residual, *hidden, *qkv, *mixed, *gated, *in_turns;
};

// Matrices of a layer that an adapter may have: queries, keys, values, attention's output, gate, up, down.
constexpr int64_t LORA_MATRICES = 7;

class Pass {
 public:
  Pass(const Shape& shape, const Tokens& tokens, const Room& room, int threads)
      : s(shape), t(tokens), room(room), threads(threads) {}

  void run(const Layer& layer, int64_t number) {
    const int64_t width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim, all = width + 2 * kv_width;
    const int64_t matrix = number * LORA_MATRICES;
    const Group& group = t.groups[layer.group];
    multiply(room.qkv, read(layer.attention_norm), layer.qkv, s.hidden, matrix, {width, kv_width, kv_width});
    if (layer.query_norm != nullptr) {
      norm_heads(room.qkv, layer.query_norm, all, s.heads);
      norm_heads(room.qkv + width, layer.key_norm, all, s.kv_heads);
    }
    rope_kv_write(room.qkv, t.positions, layer.rotary, layer.cache, s.quantized, group.slots, t.count, s.heads,
                  s.kv_heads, s.head_dim, layer.rotary_dim, s.block_size, threads);
    paged_attention(room.mixed, room.qkv, all, layer.cache, s.quantized, s.heads, s.kv_heads, s.head_dim, s.block_size,
                    group.query_starts, group.seq_lens, group.tables, group.table_width, group.sequences, s.scale,
                    layer.window, s.softcap, layer.sinks, threads);
    multiply(room.hidden, room.mixed, layer.attention_out, width, matrix + 3, {s.hidden});
    finish(layer.attention_post_norm);
    multiply_gated(read(layer.mlp_norm), layer.gate_up, matrix + 4);
    multiply(room.hidden, room.gated, layer.down, s.intermediate, matrix + 6, {s.hidden});
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

  // widths: of the matrices that are below each other in one, the first of which is number `first` of all adapters.
  void multiply(bf16* out, const bf16* x, const Matrix& matrix, int64_t inputs, int64_t first,
                std::initializer_list<int64_t> widths) {
    int64_t outputs = 0;
    for (int64_t width : widths) outputs += width;
    packed_matmul(out, x, matrix.packed, matrix.strips, matrix.bias, t.count, outputs, inputs, NO_GATE, threads);
    if (t.lora != nullptr)
      add_lora(out, x, 0, t.lora, first, widths.size(), widths.begin(), inputs, 0, threads);
  }

  // As multiply, gate and up into room.gated; what adapters add is added before the gate.
  void multiply_gated(const bf16* x, const Matrix& matrix, int64_t first) {
    bf16* out = t.lora == nullptr ? room.gated : room.in_turns;
    packed_matmul(out, x, matrix.packed, matrix.strips, matrix.bias, t.count, 2 * s.intermediate, s.hidden,
                  t.lora == nullptr ? s.gate : IN_TURNS, threads);
    if (t.lora == nullptr) return;
    const int64_t widths[] = {s.intermediate, s.intermediate};
    add_lora(out, x, 0, t.lora, first, 2, widths, s.hidden, 1, threads);
#pragma omp parallel for num_threads(threads) if (t.count * s.intermediate > PARALLEL_ELEMENTS)
    for (int64_t row = 0; row < t.count; row++)
      for (int64_t i = 0; i < s.intermediate; i += LANES) {
        const bf16* gate = out + 2 * row * s.intermediate + i / 16 * 32 + i % 16;
        store_bf16(room.gated + row * s.intermediate + i,
                   activate(s.gate, load_bf16(gate)) * load_bf16(gate + 16));
      }
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
  for (int64_t number = 0; number < shape->layers; number++) pass.run(layers[number], number);
}
