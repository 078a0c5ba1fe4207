// Products of bfloat16 rows with bfloat16 weights. Sums are in float32 and in the order of the inputs, so a row's result
// does not depend on the rows beside it.
//
// Packed weights are tiles of 16 outputs and 32 inputs, a tile's inputs in pairs: packed[outputs / 16, inputs / 32, 16,
// 16, 2], where entry [.., .., k, n, j] is input 2 * k + j of output n. So a tile is 1 KiB in one piece, and weights are
// read from memory once, in order. Weights that are packed more densely are made such tiles on the way: blocks.h.
#include <algorithm>

#include "blocks.h"
#include "operations.h"
#if defined(__AMX_TILE__)
#include "matmul_amx.h"
#else
#include "matmul_vectors.h"
#endif

namespace {

constexpr int OUTPUTS = 2 * ROWS;  // outputs that are worked on at once
constexpr int64_t DEPTH = 288;     // inputs of 32 outputs, kept in the first cache while rows pass by
constexpr int64_t UNPACKED = 256;  // the same of blocks, which have up to as many inputs

// What lies at `base`: strips, or tiles of all outputs one after another.
struct Weights {
  const uint8_t* base;
  const Strip* strips;
  int64_t inputs;

  Strip at(int64_t output) const {
    return strips == nullptr ? Strip{output * inputs * int64_t(sizeof(bf16)), BF16} : strips[output / ROWS];
  }
  // Tiles of inputs from..from + depth of a strip, which are in `room` where they had to be made.
  const bf16* tiles(const Strip& strip, int64_t from, int64_t depth, bf16* room) const {
    const uint8_t* begin = base + strip.offset;
    if (strip.kind == BF16) return (const bf16*)begin + from * ROWS;
    unpack(strip.kind, begin, from, depth, room);
    return room;
  }
};

// A sum with the bias of its output, as rounded as if it had been stored first.
Row biased(const float* sum, const bf16* bias) {
  return bias == nullptr ? load_row(sum) : round_bf16(load_row(sum)) + load_bf16(bias);
}

// Of 32 sums a row: both halves, or the first half as gate of the second. Biases of either may be null.
void store(const float (*sums)[OUTPUTS], bf16* out, int64_t stride, int64_t rows, int gate, const bf16* left_bias,
           const bf16* right_bias) {
  for (int64_t row = 0; row < rows; row++, out += stride) {
    for (int i = 0; i < ROWS; i += LANES) {
      const Row left = biased(sums[row] + i, left_bias == nullptr ? nullptr : left_bias + i);
      const Row right = biased(sums[row] + ROWS + i, right_bias == nullptr ? nullptr : right_bias + i);
      store_bf16(out + i, gate ? activate(gate, round_bf16(left)) * round_bf16(right) : left);
      if (!gate) store_bf16(out + ROWS + i, right);
    }
  }
}

}  // namespace

// out[rows, outputs] = x[rows, inputs] * weight + bias, which may be null; inputs and outputs in whole 32. strips: of every
// 16 outputs; without any, `packed` is tiles. With a gate tiles of it and of what it opens for are in turns, the bias is
// all of the gate's first, and out[rows, outputs / 2] = activation(gate) * other; IN_TURNS it is out[rows, outputs].
extern "C" void packed_matmul(bf16* out, const bf16* x, const uint8_t* packed, const int64_t* strips, const bf16* bias,
                              int64_t rows, int64_t outputs, int64_t inputs, int gate, int threads) {
  const Weights weights{packed, (const Strip*)strips, inputs};
  const bool opens = gate != NO_GATE && gate != IN_TURNS;
  const int64_t width = opens ? outputs / 2 : outputs, apart = gate ? outputs / 2 : ROWS;
  Multiplier multiplier(x, rows, inputs);
#pragma omp parallel num_threads(threads) firstprivate(multiplier)
  {
    alignas(64) static thread_local float sums[MOST_ROWS][OUTPUTS];
    alignas(64) static thread_local bf16 room[2][UNPACKED * ROWS];
    for (int64_t begin = 0; begin < rows; begin += MOST_ROWS) {
      const int64_t end = std::min(rows, begin + MOST_ROWS), parts = passes(end - begin);
      multiplier.begin(begin, end);
      bool first = true;  // of this thread's outputs, whose weights nobody has fetched
#pragma omp for schedule(static) nowait
      for (int64_t output = 0; output < outputs; output += OUTPUTS) {
        const int64_t place = opens ? output / 2 : output;
        const bf16 *left_bias = bias == nullptr ? nullptr : bias + (gate ? output / 2 : output);
        const bf16 *right_bias = bias == nullptr ? nullptr : left_bias + apart;
        const Strip strip = weights.at(output), other = weights.at(output + ROWS);
        const bool ready = strip.kind == BF16 && other.kind == BF16;
        // One part of the rows is too quick to fetch for others.
        Upcoming upcoming{(const char*)packed + other.offset + ROWS * inputs * sizeof(bf16),
                          parts == 1 || !ready ? 0 : (2 * ROWS + parts - 1) / parts};
        if (!ready && end - begin <= FUSED_ROWS && strip.kind == other.kind) {
          const uint8_t *left = weights.base + strip.offset, *right = weights.base + other.offset;
          multiplier.run_blocks(begin, end - begin, strip.kind, left, right, sums);
          store(sums, out + begin * width + place, width, end - begin, opens ? gate : NO_GATE, left_bias, right_bias);
          continue;
        }
        const int64_t most = ready ? DEPTH : UNPACKED;
        for (int64_t from = 0; from < inputs; from += most) {
          const int64_t depth = std::min(most, inputs - from);
          const bf16 *left = weights.tiles(strip, from, depth, room[0]),
                     *right = weights.tiles(other, from, depth, room[1]);
          for (int64_t row = begin, count; row < end; row += count) {
            count = rows_at_once(end - row);
            const bool near = ready && row == begin && (first || parts == 1), last = from + depth == inputs;
            bf16* to = out + row * width + place;
            for (int64_t i = 0; last && i < count; i++) __builtin_prefetch(to + i * width, 1);
            multiplier.run(row, count, from, depth, left, right, near, upcoming, sums + (row - begin));
            if (last) store(sums + (row - begin), to, width, count, opens ? gate : NO_GATE, left_bias, right_bias);
          }
        }
        first = false;
      }
    }
    multiplier.end();
  }
}

// out[count, inputs]: the rows of a matrix in strips whose numbers are in `rows`.
extern "C" void packed_rows(bf16* out, const uint8_t* packed, const int64_t* strips, const int64_t* rows, int64_t count,
                            int64_t inputs, int threads) {
  const Weights weights{packed, (const Strip*)strips, inputs};
#pragma omp parallel for num_threads(threads) if (count * inputs > PARALLEL_ELEMENTS)
  for (int64_t i = 0; i < count; i++) {
    alignas(64) static thread_local bf16 room[UNPACKED * ROWS];
    const int64_t lane = rows[i] % ROWS;
    for (int64_t from = 0; from < inputs; from += UNPACKED) {
      const int64_t depth = std::min(UNPACKED, inputs - from);
      const bf16* tiles = weights.tiles(weights.at(rows[i]), from, depth, room);
      for (int64_t pair = 0; pair < depth / 2; pair++)
        std::memcpy(out + i * inputs + from + 2 * pair, tiles + pair * LINE + 2 * lane, 2 * sizeof(bf16));
    }
  }
}
