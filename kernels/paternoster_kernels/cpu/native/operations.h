// The operations; each says beside its definition what it does.
#pragma once
#include "gate.h"
#include "vectors.h"

// An adapter's two matrices for one of the model's: down[rank, inputs] and up[rank, outputs]; a rank of 0 for none.
struct LoraMatrix {
  const void *down, *up;
  int64_t rank;
  double scale;
};

// Rows starts[i]..starts[i + 1] have the adapter whose matrices are table[.., i]; table[matrices, segments].
struct LoraBatch {
  const LoraMatrix* table;
  const int64_t* starts;
  int64_t segments;
};

extern "C" {

void add_lora(void* out, const void* x, int wide, const LoraBatch* batch, int64_t first, int64_t parts,
              const int64_t* widths, int64_t inputs, int turns, int threads);
void argmax(int64_t* out, const bf16* logits, int64_t rows, int64_t n, int threads);
void gated_mul(bf16* out, const bf16* gate_up, int64_t rows, int64_t n, int gate, int threads);
void int8_matmul(bf16* out, const bf16* x, const int8_t* packed, const float* scales, int8_t* quantized,
                 float* row_scales, int64_t rows, int64_t outputs, int64_t inputs, int threads);
void kv_write(const bf16* rows, int64_t heads, void* cache, int quantized, const int64_t* slots, int64_t tokens,
              int64_t kv_heads, int64_t head_dim, int64_t block_size, int threads);
void norm_parts(bf16* x, const bf16* weight, int64_t rows, int64_t stride, int64_t parts, int64_t n, float eps,
                int threads);
void packed_matmul(bf16* out, const bf16* x, const uint8_t* packed, const int64_t* strips, const bf16* bias,
                   int64_t rows, int64_t outputs, int64_t inputs, int gate, int threads);
void packed_rows(bf16* out, const uint8_t* packed, const int64_t* strips, const int64_t* rows, int64_t count,
                 int64_t inputs, int threads);
void paged_attention(bf16* out, const bf16* queries, int64_t query_stride, void* cache, int quantized, int64_t heads,
                     int64_t kv_heads, int64_t head_dim, int64_t block_size, const int32_t* query_starts,
                     const int32_t* seq_lens, const int32_t* tables, int64_t table_width, int64_t sequences, float scale,
                     int64_t window, float softcap, const bf16* sinks, int threads);
void rms_norm(bf16* out, const bf16* x, bf16* residual, const bf16* weight, int64_t rows, int64_t n, float eps,
              int threads);
void rope_kv_write(bf16* qkv, const int64_t* positions, const float* angles, void* cache, int quantized,
                   const int64_t* slots, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim,
                   int64_t rotary_dim, int64_t block_size, int threads);
void sample(int64_t* out, const void* logits, int wide, const float* temperature, const int32_t* top_k,
            const float* top_p, const float* floors, const int64_t* seeds, const int64_t* positions,
            const uint8_t* masks, int64_t mask_bytes, const int64_t* mask_of, int64_t rows, int64_t vocab, int threads);

}  // extern "C"
