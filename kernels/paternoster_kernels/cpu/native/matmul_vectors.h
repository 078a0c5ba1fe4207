// The inner part of packed_matmul on vectors.
#pragma once
#include <algorithm>
#include <vector>

#include "blocks.h"
#include "sums.h"
#include "upcoming.h"

#if defined(PAIR_PRODUCTS)
constexpr int64_t MOST_ROWS = 512;  // rows that pass by the same outputs, kept in the second cache
#else
constexpr int64_t MOST_ROWS = 256;
#endif

// So few rows are multiplied with lines while these are made of blocks, and lines are not stored.
constexpr int64_t FUSED_ROWS = 4;

// How many rows of `left` are multiplied at once, in parts of about the same size; and how many such parts there are.
inline int64_t passes(int64_t left) { return (left + SUM_ROWS - 1) / SUM_ROWS; }
inline int64_t rows_at_once(int64_t left) { return (left + passes(left) - 1) / passes(left); }

class Multiplier {
 public:
  Multiplier(const bf16* x, int64_t rows, int64_t inputs) : x(x), inputs(inputs) {
#if !defined(PAIR_PRODUCTS)
    static thread_local std::vector<float> room;
    const size_t size = std::min(rows, MOST_ROWS) * inputs;
    if (room.size() < size) room.resize(size);
    wide = room.data();
#endif
  }

  // By every thread of a team, before rows begin..end.
  void begin(int64_t begin, int64_t end) {
#if !defined(PAIR_PRODUCTS)
    wide_from = begin;
    if (begin > 0) {
#pragma omp barrier
    }
#pragma omp for schedule(static)
    for (int64_t row = begin; row < end; row++) {
      float* to = wide + (row - begin) * inputs;
      for (int64_t i = 0; i < inputs; i += LANES) store(to + i, load_bf16(x + row * inputs + i));
    }
#endif
  }
  void end() {}

  // Adds `count` rows, from..from + depth of their inputs, times as many inputs of two tiles of outputs, which are at
  // left and right, to sums, or begins them with the first. near: these weights are still in memory, so they are fetched
  // just before their turn.
  void run(int64_t row, int64_t count, int64_t from, int64_t depth, const bf16* left, const bf16* right, bool near,
           Upcoming& upcoming, float (*sums)[2 * ROWS]) const {
    with_rows(count, [&](auto constant) {
      constexpr int COUNT = decltype(constant)::value, WIDTH = tiles_at_once<COUNT>(2);
      const Factor* factors = factors_of(row) + from;
      for (int tile = 0; tile < 2; tile += WIDTH) {
        const bf16* lines = tile == 0 ? left : right;
        float* to = sums[0] + tile * ROWS;
        Sums<COUNT, WIDTH> total;
        if (from == 0)
          total.begin();
        else
          total.load(to, 2 * ROWS);
        for (int64_t i = 0; i < depth; i += LINE) {
          for (int beside = 0; near && beside < WIDTH; beside++)
            fetch(lines + beside * (right - left) + (i + AHEAD * LINE) * ROWS);
          if (tile == 0) upcoming.fetch();
          total.add(factors + i, inputs, lines + i * ROWS, right - left, ROWS);
        }
        total.store(to, 2 * ROWS);
      }
    });
  }

  // sums = `count` rows, at most FUSED_ROWS, times two strips of blocks of one kind; in the same order as run() has.
  void run_blocks(int64_t row, int64_t count, int64_t kind, const uint8_t* left, const uint8_t* right,
                  float (*sums)[2 * ROWS]) const {
    with_format(kind, [&](auto format) {
      using Format = decltype(format);
      with_rows<FUSED_ROWS>(count, [&](auto constant) {
        constexpr int COUNT = decltype(constant)::value;
        for (int lane = 0; lane < ROWS; lane += LANES) {
          Sums<COUNT, 1> total[2];  // of a vector of each strip
          total[0].begin(), total[1].begin();
          for (int64_t i = 0; i < inputs; i += Format::INPUTS) {
#pragma GCC unroll 2
            for (int strip = 0; strip < 2; strip++) {
              const Factor* factors = factors_of(row) + i;
              auto take = [&](Words line) {
                total[strip].add_part(factors, inputs, line);
                factors += 2;
              };
              Format::unpack(block_at<Format>(strip == 0 ? left : right, i), lane, take);
            }
          }
          for (int i = 0; i < COUNT; i++) {
            ::store(sums[i] + lane, total[0].of[i][0]);
            ::store(sums[i] + ROWS + lane, total[1].of[i][0]);
          }
        }
      });
    });
  }

 private:
  const Factor* factors_of(int64_t row) const {
#if defined(PAIR_PRODUCTS)
    return x + row * inputs;
#else
    return wide + (row - wide_from) * inputs;
#endif
  }

  const bf16* x;
  int64_t inputs, wide_from = 0;
  float* wide = nullptr;
};
