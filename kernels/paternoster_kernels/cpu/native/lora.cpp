// Low-rank adapters: to rows of a product, what each row's own adapter adds. Sums are in float32 and in one order whatever
// rows are beside a row, so its result does not depend on them.
#include <algorithm>
#include <vector>

#include "operations.h"

namespace {

constexpr int64_t NEAR = 4;         // rows, and ranks, that are worked on at once
constexpr int64_t SPAN = 4 * LANES;  // outputs of a row that are

Row load_numbers(const bf16* from) { return load_bf16(from); }
Row load_numbers(const float* from) { return load_row(from); }
float load_number(const bf16* from) { return load_one(from); }
float load_number(const float* from) { return *from; }
void store_numbers(bf16* to, Row values) { store_bf16(to, values); }
void store_numbers(float* to, Row values) { store(to, values); }
void store_number(bf16* to, float value) { store_one(to, value); }
void store_number(float* to, float value) { *to = value; }

// Rows of one segment with one part of the outputs, and some of its ranks or of its outputs.
struct Piece {
  const LoraMatrix* matrix;
  int64_t part, row, rows, from, to;
};

// sums[row][rank] of up to NEAR rows and ranks: products over all inputs, times the scale.
template <class Number>
void shrink(const Number* x, int64_t inputs, const Piece& piece, float* room, int64_t stride) {
  const Number* down = (const Number*)piece.matrix->down;
  const int64_t ranks = piece.to - piece.from, whole = inputs / LANES * LANES;
  Row sums[NEAR][NEAR] = {};
  const Number *rows[NEAR], *weights[NEAR];
  // Beyond the last one it is repeated, and not stored: so there is one loop, which rounds alike.
  for (int64_t i = 0; i < NEAR; i++) {
    rows[i] = x + (piece.row + std::min(i, piece.rows - 1)) * inputs;
    weights[i] = down + (piece.from + std::min(i, ranks - 1)) * inputs;
  }
  if (piece.rows == 1) {
    for (int64_t k = 0; k < whole; k += LANES) {
      const Row row = load_numbers(rows[0] + k);
#pragma GCC unroll 4
      for (int rank = 0; rank < NEAR; rank++) sums[0][rank] = fma(row, load_numbers(weights[rank] + k), sums[0][rank]);
    }
  } else {
    for (int64_t k = 0; k < whole; k += LANES) {
      Row weight[NEAR];
#pragma GCC unroll 4
      for (int rank = 0; rank < NEAR; rank++) weight[rank] = load_numbers(weights[rank] + k);
#pragma GCC unroll 4
      for (int i = 0; i < NEAR; i++) {
        const Row row = load_numbers(rows[i] + k);
#pragma GCC unroll 4
        for (int rank = 0; rank < NEAR; rank++) sums[i][rank] = fma(row, weight[rank], sums[i][rank]);
      }
    }
  }
  const float scale = float(piece.matrix->scale);
  for (int64_t i = 0; i < piece.rows; i++)
    for (int64_t rank = 0; rank < ranks; rank++) {
      float total = sum(sums[i][rank]);
      for (int64_t k = whole; k < inputs; k++)
        total = __builtin_fmaf(load_number(rows[i] + k), load_number(weights[rank] + k), total);
      room[(piece.row + i) * stride + piece.from + rank] = total * scale;
    }
}

// Where output `output` of a part is in a row; with outputs in turns, strips of 16 of two parts alternate.
struct Place {
  int64_t first, turns, part;
  int64_t at(int64_t output) const {
    return turns ? output / 16 * 32 + part * 16 + output % 16 : first + output;
  }
};

// Adds up to NEAR rows' sums times outputs from..to of up[rank, outputs].
template <class Number>
void expand(Number* out, int64_t width, const Place& place, const Piece& piece, int64_t outputs, const float* room,
            int64_t stride) {
  const Number* up = (const Number*)piece.matrix->up;
  const int64_t ranks = piece.matrix->rank;
  const float* factors[NEAR];
  for (int64_t i = 0; i < NEAR; i++) factors[i] = room + (piece.row + std::min(i, piece.rows - 1)) * stride;
  int64_t output = piece.from;
  for (; output + LANES <= piece.to; output += LANES) {
    Row sums[NEAR] = {};
    if (piece.rows == 1) {
      for (int64_t rank = 0; rank < ranks; rank++)
        sums[0] = fma(all(factors[0][rank]), load_numbers(up + rank * outputs + output), sums[0]);
    } else {
      for (int64_t rank = 0; rank < ranks; rank++) {
        const Row weight = load_numbers(up + rank * outputs + output);
#pragma GCC unroll 4
        for (int i = 0; i < NEAR; i++) sums[i] = fma(all(factors[i][rank]), weight, sums[i]);
      }
    }
    for (int64_t i = 0; i < piece.rows; i++) {
      Number* to = out + (piece.row + i) * width + place.at(output);
      store_numbers(to, load_numbers(to) + sums[i]);
    }
  }
  for (; output < piece.to; output++)
    for (int64_t i = 0; i < piece.rows; i++) {
      float total = 0.0f;
      for (int64_t rank = 0; rank < ranks; rank++)
        total = __builtin_fmaf(factors[i][rank], load_number(up + rank * outputs + output), total);
      Number* to = out + (piece.row + i) * width + place.at(output);
      store_number(to, load_number(to) + total);
    }
}

template <class Number>
void add(Number* out, const Number* x, const LoraBatch& batch, int64_t first, int64_t parts, const int64_t* widths,
         int64_t inputs, int turns, int threads) {
  static thread_local std::vector<Piece> shrinks, expands;
  static thread_local std::vector<float> kept;
  shrinks.clear(), expands.clear();
  const LoraMatrix* table = batch.table + first * batch.segments;
  int64_t most = 0, width = 0, firsts[8] = {};
  for (int64_t part = 0; part < parts; part++) {
    firsts[part] = width, width += widths[part];
    for (int64_t segment = 0; segment < batch.segments; segment++) {
      const LoraMatrix* matrix = table + part * batch.segments + segment;
      most = std::max(most, matrix->rank);
      for (int64_t row = batch.starts[segment]; row < batch.starts[segment + 1] && matrix->rank; row += NEAR) {
        const int64_t rows = std::min(NEAR, batch.starts[segment + 1] - row);
        for (int64_t rank = 0; rank < matrix->rank; rank += NEAR)
          shrinks.push_back({matrix, part, row, rows, rank, std::min(rank + NEAR, matrix->rank)});
        for (int64_t output = 0; output < widths[part]; output += SPAN)
          expands.push_back({matrix, part, row, rows, output, std::min(output + SPAN, widths[part])});
      }
    }
  }
  if (shrinks.empty()) return;
  const int64_t stride = parts * most, size = batch.starts[batch.segments] * stride;
  if (int64_t(kept.size()) < size) kept.resize(size);
  float* room = kept.data();
  const std::vector<Piece>&downs = shrinks, &ups = expands;
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static)
    for (size_t i = 0; i < downs.size(); i++) shrink(x, inputs, downs[i], room + downs[i].part * most, stride);
#pragma omp for schedule(static)
    for (size_t i = 0; i < ups.size(); i++) {
      const Piece& piece = ups[i];
      const Place place{firsts[piece.part], turns, piece.part};
      expand(out, width, place, piece, widths[piece.part], room + piece.part * most, stride);
    }
  }
}

}  // namespace

// To out[rows, all widths], the product of x[rows, inputs], adds what the adapters of the segments of rows make of x: for
// part p of the outputs, which are widths[p], scale * (x * down) * up of matrix first + p. wide: whether numbers are
// float32, else bfloat16. turns: outputs are strips of 16 of two parts in turns.
extern "C" void add_lora(void* out, const void* x, int wide, const LoraBatch* batch, int64_t first, int64_t parts,
                         const int64_t* widths, int64_t inputs, int turns, int threads) {
  if (wide)
    add((float*)out, (const float*)x, *batch, first, parts, widths, inputs, turns, threads);
  else
    add((bf16*)out, (const bf16*)x, *batch, first, parts, widths, inputs, turns, threads);
}
