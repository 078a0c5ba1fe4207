// Products of bfloat16 rows with bfloat16 weights on AMX. Sums are in float32 and in the order of the inputs, so a row's
// result does not depend on the rows beside it.
//
// Packed weights are tiles of 16 outputs and 32 inputs, a tile's inputs in pairs: packed[outputs / 16, inputs / 32, 16,
// 16, 2], where entry [.., .., k, n, j] is input 2 * k + j of output n. So a tile is 1 KiB in one piece, and weights are
// read from memory once, in order.
#include <algorithm>
#include <cstring>
#include <vector>

#include "gate.h"
#include "tiles.h"

namespace {

constexpr int INPUTS = 32;          // inputs that one tile instruction sums over
constexpr int OUTPUTS = 2 * ROWS;   // outputs that are worked on at once
constexpr int64_t MOST_ROWS = 512;  // rows that pass by the same outputs, kept in the second cache
constexpr int64_t DEPTH = 288;      // inputs of 32 outputs, kept in the first cache while those rows pass by
constexpr int AHEAD = 8;            // tiles between what is multiplied and what the first cache fetches from memory

// Two tiles of rows; the second may be absent.
struct Pair {
  const bf16 *first, *second;
  int64_t stride;
};

void fetch(const bf16* tile) {
#pragma GCC unroll 16
  for (int line = 0; line < ROWS; line++) _mm_prefetch((const char*)(tile + line * INPUTS), _MM_HINT_T0);
}

// The weights of the next outputs, fetched into the second cache a few lines at a time while rows pass by these.
struct Upcoming {
  const char* next;
  int64_t lines;

  void fetch() {
    for (int64_t line = 0; line < lines; line++) _mm_prefetch(next + line * 64, _MM_HINT_T1);
    next += lines * 64;
  }
};

// Adds to sums, or begins them. NEAR: these weights are still in memory, so they are fetched just before their turn.
template <bool BEGIN, bool TWO, bool NEAR>
void multiply(Pair rows, const bf16* left, const bf16* right, int64_t inputs, Upcoming& upcoming,
              float (*sums)[ROWS][ROWS]) {
  if constexpr (BEGIN) {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (TWO) _tile_zero(2);
    if constexpr (TWO) _tile_zero(3);
  } else {
    _tile_loadd(0, sums[0], 64);
    _tile_loadd(1, sums[1], 64);
    if constexpr (TWO) _tile_loadd(2, sums[2], 64);
    if constexpr (TWO) _tile_loadd(3, sums[3], 64);
  }
  for (int64_t i = 0; i < inputs; i += INPUTS) {
    if constexpr (NEAR) fetch(left + (i + AHEAD * INPUTS) * ROWS);
    if constexpr (NEAR) fetch(right + (i + AHEAD * INPUTS) * ROWS);
    upcoming.fetch();
    _tile_loadd(4, left + i * ROWS, 64);
    _tile_loadd(6, rows.first + i, rows.stride * sizeof(bf16));
    _tile_loadd(5, right + i * ROWS, 64);
    _tile_dpbf16ps(0, 6, 4);
    _tile_dpbf16ps(1, 6, 5);
    if constexpr (TWO) {
      _tile_loadd(7, rows.second + i, rows.stride * sizeof(bf16));
      _tile_dpbf16ps(2, 7, 4);
      _tile_dpbf16ps(3, 7, 5);
    }
  }
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  if constexpr (TWO) _tile_stored(2, sums[2], 64);
  if constexpr (TWO) _tile_stored(3, sums[3], 64);
}

template <bool BEGIN>
auto* multiplier(bool two, bool near) {
  return two ? (near ? multiply<BEGIN, true, true> : multiply<BEGIN, true, false>)
             : (near ? multiply<BEGIN, false, true> : multiply<BEGIN, false, false>);
}

// Of 32 sums a row: both halves, or the first half as gate of the second.
void store(const float (*sums)[ROWS][ROWS], bf16* out, int64_t stride, int64_t rows, bool gated) {
  for (int64_t row = 0; row < rows; row++, out += stride) {
    const Row left = _mm512_load_ps(sums[0][row]), right = _mm512_load_ps(sums[1][row]);
    if (gated) {
      // As rounded as if the sums had been stored first.
      store_bf16(out, _mm512_mul_ps(silu(round_bf16(left)), round_bf16(right)));
    } else {
      _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(right, left));
    }
  }
}

}  // namespace

// out[rows, outputs] = x[rows, inputs] * weight; inputs and outputs in whole 32. Gated: weights have a tile of the gate
// and a tile of what it opens for in turns, and out[rows, outputs / 2] = silu(gate) * other.
extern "C" void packed_matmul(bf16* out, const bf16* x, const bf16* packed, int64_t rows, int64_t outputs,
                              int64_t inputs, int gated, int threads) {
  const int64_t whole = rows / ROWS * ROWS, width = gated ? outputs / 2 : outputs;
#pragma omp parallel num_threads(threads)
  {
    // Rows that do not fill a tile, and anything after them: what is beyond the last row is summed and not stored.
    static thread_local std::vector<bf16> last;
    alignas(64) static thread_local float sums[MOST_ROWS / OUTPUTS][4][ROWS][ROWS];
    last.resize(ROWS * inputs);
    std::memcpy(last.data(), x + whole * inputs, (rows - whole) * inputs * sizeof(bf16));
    const auto tile_at = [&](int64_t row) { return row < whole ? x + row * inputs : last.data(); };
    _tile_loadconfig(&TILES);
    for (int64_t begin = 0; begin < rows; begin += MOST_ROWS) {
      const int64_t end = std::min(rows, begin + MOST_ROWS), pairs = (end - begin + OUTPUTS - 1) / OUTPUTS;
      bool first = true;  // of this thread's outputs, whose weights nobody has fetched
#pragma omp for schedule(static) nowait
      for (int64_t output = 0; output < outputs; output += OUTPUTS) {
        const bf16 *left = packed + output * inputs, *right = left + inputs * ROWS;
        // One pair of rows is too quick to fetch for others.
        Upcoming upcoming{(const char*)(left + OUTPUTS * inputs), pairs == 1 ? 0 : (2 * ROWS + pairs - 1) / pairs};
        for (int64_t from = 0; from < inputs; from += DEPTH) {
          const int64_t depth = std::min(DEPTH, inputs - from);
          for (int64_t row = begin; row < end; row += 2 * ROWS) {
            const bool two = end - row > ROWS, last = from + depth == inputs;
            const bool near = row == begin && (first || pairs == 1);
            const Pair pair{tile_at(row) + from, tile_at(row + ROWS) + from, inputs};
            auto* sum = sums[(row - begin) / (2 * ROWS)];
            bf16* to = out + row * width + (gated ? output / 2 : output);
            for (int64_t i = row; last && i < std::min(end, row + 2 * ROWS); i++)
              __builtin_prefetch(to + (i - row) * width, 1);
            auto* run = from == 0 ? multiplier<true>(two, near) : multiplier<false>(two, near);
            run(pair, left + from * ROWS, right + from * ROWS, depth, upcoming, sum);
            if (!last) continue;
            store(sum, to, width, std::min<int64_t>(ROWS, end - row), gated);
            if (two) store(sum + 2, to + ROWS * width, width, std::min<int64_t>(ROWS, end - row - ROWS), gated);
          }
        }
        first = false;
      }
    }
    _tile_release();
  }
}
