// A token for each row: the best, or a draw from the softmax of what top-k, top-p and min-p leave.
//
// A draw is the best of score plus Gumbel noise. Noise takes two logarithms, and hardly any token can win: a bound that
// takes none rules the others out.
#include <algorithm>
#include <cmath>
#include <vector>

#include "operations.h"

namespace {

constexpr float LEAST = -INFINITY;
constexpr int CUTS = 3;  // numbers that what lies above is summed for at once

using Numbers = std::vector<Row>;  // of a row of logits, in whole vectors

uint64_t splitmix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// Random numbers in (0, 1) of some tokens: a function of the seed and position that the key comes from, and the token.
Row uniform(Words tokens, uint64_t key) {
  Words x = tokens * 0x9e3779b1u + uint32_t(key);
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= uint32_t(key >> 32);
  x ^= x >> 15;
  x *= 0x846ca68bu;
  x ^= x >> 16;
  const Row whole = __builtin_convertvector((Ints)(x & 0x7fffffffu), Row);
  return min((whole + 0.5f) * 0x1p-31f, all(1.0f - 0x1p-24f));
}

// Standard Gumbel noise; logarithms are rounded once.
float noise(float uniform) { return -float(std::log(-double(float(std::log1p(-double(uniform)))))); }

// At least the noise: -log(-log1p(-u)) <= -log(u), and a float's bits, as a number, are on straight lines below log2.
Row most_noise(Row uniform) {
  const Row line = __builtin_convertvector((Ints)uniform, Row) * 0x1p-23f - 127.0f;
  return line * -0.69314718f + 1e-3f;
}

// Logits as scores; returns the best, NaN where one of them is NaN. The last vector is padded with minus infinity.
float read_scores(const void* logits, bool wide, int64_t vocab, float temperature, Numbers& scores) {
  const int64_t whole = vocab / LANES;
  const float* floats = (const float*)logits;
  const bf16* halves = (const bf16*)logits;
  Row best = all(LEAST);
  Ints sizes{};
  for (int64_t i = 0; i < whole; i++) {
    scores[i] = (wide ? load_row(floats + i * LANES) : load_bf16(halves + i * LANES)) / temperature;
    sizes = largest_size(sizes, scores[i]);
    best = max(scores[i], best);
  }
  if (const int64_t rest = vocab % LANES) {
    float last[LANES];
    std::fill(last, last + LANES, LEAST);
    for (int64_t lane = 0; lane < rest; lane++) {
      const uint32_t bits = wide ? 0 : uint32_t(halves[whole * LANES + lane]) << 16;
      if (wide)
        last[lane] = floats[whole * LANES + lane];
      else
        std::memcpy(last + lane, &bits, sizeof bits);
    }
    scores[whole] = load_row(last) / temperature;
    sizes = largest_size(sizes, scores[whole]);
    best = max(scores[whole], best);
  }
  return has_nan(sizes) ? NAN : highest(best);
}

// Rules out the tokens that a mask does not allow; returns the best of the others. Bit t % 8 of byte t / 8 allows token
// t, and none is allowed behind the last byte.
float forbid(const uint8_t* mask, int64_t bytes, Numbers& scores) {
  const Words places = (Words)(Ints{} + 1) << (Words)lane_numbers();
  Row best = all(LEAST);
  for (size_t i = 0; i < scores.size(); i++) {
    const int64_t byte = i * LANES / 8;
    uint32_t bits = byte < bytes ? mask[byte] : 0;
    if (LANES > 8 && byte + 1 < bytes) bits |= uint32_t(mask[byte + 1]) << 8;
    const Ints allowed = (Ints)((bits >> i * LANES % 8) & places) != 0;
    scores[i] = allowed ? scores[i] : all(LEAST);
    best = max(scores[i], best);
  }
  return highest(best);
}

// Floats in their order, as whole numbers, and back.
int64_t rank_of(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}
float ranked(int64_t rank) {
  const int32_t bits = rank < 0 ? int32_t(rank) ^ 0x7fffffff : int32_t(rank);
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Of each cut: the sum of weight(i) of all scores above it.
template <class Weight>
void sum_above(const Numbers& scores, const Weight& weight, const float (&cuts)[CUTS], double (&sums)[CUTS]) {
  constexpr size_t PART = 64;  // vectors whose sum is a float: more would be less exact
  std::fill(sums, sums + CUTS, 0.0);
  for (size_t from = 0; from < scores.size(); from += PART) {
    const size_t to = std::min(from + PART, scores.size());
    Row part[CUTS] = {};
    for (size_t i = from; i < to; i++) {
      const Row score = scores[i], has = weight(i);
#pragma GCC unroll 4
      for (int j = 0; j < CUTS; j++) part[j] += score > cuts[j] ? has : Row{};
    }
    for (int j = 0; j < CUTS; j++) sums[j] += sum(part[j]);
  }
}

// The lowest number from `least` to `best` above which the sum is below `limit`: that of the last score that is kept, and
// so of its equals. Found by halving, twice with each look at the scores.
template <class Weight>
float cut(const Numbers& scores, float least, float best, double limit, const Weight& weight) {
  int64_t below = rank_of(least) - 1, enough = rank_of(best);
  while (enough - below > 1) {
    int64_t ranks[CUTS];
    float cuts[CUTS];
    double sums[CUTS];
    for (int j = 0; j < CUTS; j++) {
      ranks[j] = std::max(below + 1, below + (enough - below) * (j + 1) / (CUTS + 1));
      cuts[j] = ranked(ranks[j]);
    }
    sum_above(scores, weight, cuts, sums);
    for (int j = CUTS - 1; j >= 0 && sums[j] < limit; j--) enough = ranks[j];
    for (int j = 0; j < CUTS && ranks[j] < enough; j++) below = ranks[j];
  }
  return ranked(enough);
}

// The lowest score that is kept; floor: of min-p.
float threshold(const Numbers& scores, Numbers& shares, int64_t vocab, float best, int32_t top_k, float top_p,
                float floor) {
  float least = LEAST;
  if (top_k > 0 && top_k < vocab) least = cut(scores, LEAST, best, top_k, [](size_t) { return all(1.0f); });
  if (top_p < 1.0f) {
    shares.resize(scores.size());
    for (size_t i = 0; i < scores.size(); i++) shares[i] = exp2((scores[i] - best) * LOG2E);
    const auto share = [&](size_t i) { return shares[i]; };
    double all_of[CUTS];
    const float below = std::nextafter(least, LEAST);
    sum_above(scores, share, {below, below, below}, all_of);
    least = cut(scores, least, best, top_p * all_of[0], share);
  }
  return std::max(least, floor);
}

// The first of the best of scores plus noise.
int64_t draw(const Numbers& scores, float threshold, uint64_t key) {
  int64_t token = 0;
  float best = LEAST;
  Words tokens = (Words)lane_numbers();
  for (size_t i = 0; i < scores.size(); i++, tokens += LANES) {
    const Row random = uniform(tokens, key);
    const Ints able = (scores[i] + most_noise(random) > best) & (scores[i] >= threshold);
    if (!any(able)) continue;
    for (int lane = 0; lane < LANES; lane++) {
      if (!able[lane]) continue;
      const float noisy = scores[i][lane] + noise(random[lane]);
      if (!(noisy > best)) continue;
      best = noisy;
      token = i * LANES + lane;
    }
  }
  return token;
}

// Index of the first score equal to best. best is finite, so the padding of the last vector is never chosen.
int64_t first_of(const Numbers& scores, float best) {
  for (size_t i = 0; i < scores.size(); i++) {
    const Ints equal = scores[i] == best;
    if (!any(equal)) continue;
    for (int lane = 0; lane < LANES; lane++)
      if (equal[lane]) return i * LANES + lane;
  }
  return 0;
}

}  // namespace

// out[rows] for logits[rows, vocab], float32 where `wide` and else bfloat16; the others have one number a row. floors: the
// logarithm of min-p. Temperature 0: the best. out is -1 for a row that contains NaN, whose best is infinite, or whose mask
// allows no token. mask_of: the index of the row's mask in masks[.., mask_bytes], -1 for none; null if no row has one.
extern "C" void sample(int64_t* out, const void* logits, int wide, const float* temperature, const int32_t* top_k,
                       const float* top_p, const float* floors, const int64_t* seeds, const int64_t* positions,
                       const uint8_t* masks, int64_t mask_bytes, const int64_t* mask_of, int64_t rows, int64_t vocab,
                       int threads) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (rows * vocab > PARALLEL_ELEMENTS)
  for (int64_t row = 0; row < rows; row++) {
    static thread_local Numbers scores, shares;
    scores.resize((vocab + LANES - 1) / LANES);
    const bool greedy = temperature[row] == 0.0f;
    const char* from = (const char*)logits + row * vocab * (wide ? sizeof(float) : sizeof(bf16));
    float best = read_scores(from, wide, vocab, greedy ? 1.0f : temperature[row], scores);
    if (mask_of != nullptr && mask_of[row] >= 0 && !std::isnan(best))
      best = forbid(masks + mask_of[row] * mask_bytes, mask_bytes, scores);
    if (!std::isfinite(best)) {
      out[row] = -1;
      continue;
    }
    if (greedy) {
      out[row] = first_of(scores, best);
      continue;
    }
    const float kept = threshold(scores, shares, vocab, best, top_k[row], top_p[row], best + floors[row]);
    out[row] = draw(scores, kept, splitmix64(splitmix64(seeds[row]) ^ positions[row]));
  }
}
