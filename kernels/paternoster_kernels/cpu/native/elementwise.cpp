// Norms, the gate of the MLP, and the best token of a row; all bfloat16, rows in whole 16.
#include <cmath>
#include <limits>

#include "operations.h"

namespace {

Row residual_sum(const bf16* x, bf16* residual, int64_t i) {
  if (residual == nullptr) return load_bf16(x + i);
  const Halves sum = narrow(load_bf16(residual + i) + load_bf16(x + i));
  store(residual + i, sum);
  return widen(sum);
}

// out = norm(x) * weight; with a residual, of residual + x.
void norm(bf16* out, const bf16* x, bf16* residual, const bf16* weight, int64_t n, float eps) {
  Row squares = all(0.0f);
  for (int64_t i = 0; i < n; i += LANES) {
    const Row values = residual_sum(x, residual, i);
    squares = fma(values, values, squares);
  }
  const float scale = 1.0f / std::sqrt(sum(squares) / float(n) + eps);
  const bf16* normed = residual == nullptr ? x : residual;
  for (int64_t i = 0; i < n; i += LANES) store_bf16(out + i, load_bf16(normed + i) * scale * load_bf16(weight + i));
}

}  // namespace

extern "C" {

// out = norm(x) * weight for rows of n; with a residual, of residual + x, which is left in residual.
void rms_norm(bf16* out, const bf16* x, bf16* residual, const bf16* weight, int64_t rows, int64_t n, float eps,
              int threads) {
#pragma omp parallel for num_threads(threads) if (rows * n > PARALLEL_ELEMENTS)
  for (int64_t row = 0; row < rows; row++)
    norm(out + row * n, x + row * n, residual == nullptr ? nullptr : residual + row * n, weight, n, eps);
}

// In place: norm(part) * weight of the first `parts` parts of n in each of rows that are `stride` elements apart.
void norm_parts(bf16* x, const bf16* weight, int64_t rows, int64_t stride, int64_t parts, int64_t n, float eps,
                int threads) {
#pragma omp parallel for num_threads(threads) if (rows * parts * n > PARALLEL_ELEMENTS)
  for (int64_t row = 0; row < rows; row++)
    for (int64_t part = 0; part < parts; part++) {
      bf16* values = x + row * stride + part * n;
      norm(values, values, nullptr, weight, n, eps);
    }
}

// out[rows, n] = activation(gate) * up for gate_up[rows, 2 * n].
void gated_mul(bf16* out, const bf16* gate_up, int64_t rows, int64_t n, int gate, int threads) {
#pragma omp parallel for num_threads(threads) if (rows * n > PARALLEL_ELEMENTS)
  for (int64_t row = 0; row < rows; row++) {
    const bf16 *gates = gate_up + row * 2 * n, *ups = gates + n;
    for (int64_t i = 0; i < n; i += LANES)
      store_bf16(out + row * n + i, activate(gate, load_bf16(gates + i)) * load_bf16(ups + i));
  }
}

// Index of the largest of n values in each row, the first of equals; -1 for a row that has NaN or whose largest value is
// infinite.
void argmax(int64_t* out, const bf16* logits, int64_t rows, int64_t n, int threads) {
#pragma omp parallel for num_threads(threads) if (rows * n > PARALLEL_ELEMENTS)
  for (int64_t row = 0; row < rows; row++) {
    const bf16* values = logits + row * n;
    Row best = all(-std::numeric_limits<float>::infinity());
    Ints where{}, index = lane_numbers(), sizes{};
    for (int64_t i = 0; i < n; i += LANES, index += LANES) {
      const Row next = load_bf16(values + i);
      sizes = largest_size(sizes, next);
      const Ints better = next > best;
      best = better ? next : best;
      where = better ? index : where;
    }
    const float most = highest(best);
    if (has_nan(sizes) || !std::isfinite(most)) {
      out[row] = -1;
      continue;
    }
    const Ints equal = best == most;
    const Ints found = equal ? where : Ints{} + std::numeric_limits<int32_t>::max();
    out[row] = fold<int32_t>(found, [](int32_t a, int32_t b) { return a < b ? a : b; });
  }
}

}  // extern "C"
