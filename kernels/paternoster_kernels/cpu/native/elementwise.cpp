// Norm, the gate of the MLP, and the best token of a row; all bfloat16.
#include <cmath>
#include <limits>

#include "gate.h"

namespace {

Row residual_sum(const bf16* x, bf16* residual, int64_t i) {
  if (residual == nullptr) return load_bf16(x + i);
  const Row sum = _mm512_add_ps(load_bf16(residual + i), load_bf16(x + i));
  store_bf16(residual + i, sum);
  return round_bf16(sum);
}

}  // namespace

extern "C" {

// out = norm(x) * weight for rows of n; with a residual, of residual + x, which is left in residual.
void rms_norm(bf16* out, const bf16* x, bf16* residual, const bf16* weight, int64_t rows, int64_t n, float eps,
              int threads) {
#pragma omp parallel for num_threads(threads) if (rows * n > PARALLEL_ELEMENTS)
  for (int64_t row = 0; row < rows; row++) {
    const bf16* from = x + row * n;
    bf16* kept = residual == nullptr ? nullptr : residual + row * n;
    Row squares = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += 16) {
      const Row values = residual_sum(from, kept, i);
      squares = _mm512_fmadd_ps(values, values, squares);
    }
    const Row scale = _mm512_set1_ps(1.0f / std::sqrt(_mm512_reduce_add_ps(squares) / float(n) + eps));
    const bf16* normed = kept == nullptr ? from : kept;
    for (int64_t i = 0; i < n; i += 16)
      store_bf16(out + row * n + i, _mm512_mul_ps(_mm512_mul_ps(load_bf16(normed + i), scale), load_bf16(weight + i)));
  }
}

// out[rows, n] = silu(gate) * up for gate_up[rows, 2 * n].
void silu_mul(bf16* out, const bf16* gate_up, int64_t rows, int64_t n, int threads) {
#pragma omp parallel for num_threads(threads) if (rows * n > PARALLEL_ELEMENTS)
  for (int64_t row = 0; row < rows; row++) {
    const bf16 *gates = gate_up + row * 2 * n, *ups = gates + n;
    for (int64_t i = 0; i < n; i += 16) {
      store_bf16(out + row * n + i, _mm512_mul_ps(silu(load_bf16(gates + i)), load_bf16(ups + i)));
    }
  }
}

// Index of the largest of n values in each row, the first of equals.
void argmax(int64_t* out, const bf16* logits, int64_t rows, int64_t n, int threads) {
#pragma omp parallel for num_threads(threads) if (rows * n > PARALLEL_ELEMENTS)
  for (int64_t row = 0; row < rows; row++) {
    const bf16* values = logits + row * n;
    Row best = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
    __m512i where = _mm512_setzero_si512();
    __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int64_t i = 0; i < n; i += 16) {
      const Row next = load_bf16(values + i);
      const __mmask16 better = _mm512_cmp_ps_mask(next, best, _CMP_GT_OQ);
      best = _mm512_mask_mov_ps(best, better, next);
      where = _mm512_mask_mov_epi32(where, better, index);
      index = _mm512_add_epi32(index, _mm512_set1_epi32(16));
    }
    const __mmask16 equal = _mm512_cmp_ps_mask(best, _mm512_set1_ps(_mm512_reduce_max_ps(best)), _CMP_EQ_OQ);
    out[row] = _mm512_mask_reduce_min_epi32(equal, where);
  }
}

}  // extern "C"
