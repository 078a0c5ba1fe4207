// Causal grouped-query attention over the paged cache in bfloat16; softmax in float32, online over chunks.
//
// A row is a (token, head) pair; rows that read one key head are multiplied together. Keys and values lie in the cache as
// tiles already, so a page goes from memory into products without a detour.
#include <algorithm>
#include <cmath>
#include <vector>

#include "pages.h"
#if defined(__AMX_TILE__)
#include "attention_amx.h"
#else
#include "attention_vectors.h"
#endif

namespace {

constexpr int CHUNK = 512;    // tokens whose scores are kept at once, in a near cache; fewer were slower
constexpr int MAX_TILES = 8;  // tiles of QUERIES rows of a work item

template <int DIM>
struct Scratch {
  alignas(64) Factor queries[MAX_TILES][QUERIES][DIM];
  alignas(64) float scores[QUERIES][CHUNK];
  alignas(64) Factor weights[QUERIES][CHUNK];
  alignas(64) float out[MAX_TILES][QUERIES][DIM];
  alignas(64) bf16 last_values[DIM * STEP];
  float highest[MAX_TILES][QUERIES], sum[MAX_TILES][QUERIES];
};

// Rows first..first + count of one sequence and key head; row r is head r % group of new token r / group.
struct Item {
  int64_t sequence, kv_head, first, count;
};

template <int DIM>
class Attention {
 public:
  // length: tokens of the sequence.
  Attention(Scratch<DIM>& scratch, Products<DIM>& products, const Pages& pages, const int32_t* table, int64_t kv_head,
            int64_t length, float scale)
      : s(scratch), products(products), pages(pages), table(table), kv_head(kv_head), last_step(length / STEP * STEP),
        scale(scale * LOG2E) {
    // What was never written may be no number, and nothing times that is no number either.
    if (length % STEP == 0) return;
    const bf16* values = pages.values(block(last_step), kv_head, offset(last_step));
    const int64_t count = length % STEP;
    for (int64_t i = 0; i < DIM * STEP; i += LINE) {
      const int64_t token = i / LINE % ROWS * 2;
      const uint32_t kept = token + 1 < count ? 0xffffffffu : token < count ? 0xffffu : 0u;
      for (int64_t lane = 0; lane < LINE; lane += 2 * LANES)
        ::store(s.last_values + i + lane, load<Words>(values + i + lane) & kept);
    }
  }

  // The first `rows` rows of a tile to `count` tokens from `start` on, in whole steps; the last may be beyond the
  // sequence. allowed[row]: how many of them a row may see.
  void run(int tile, int rows, const int64_t* allowed, int64_t start, int64_t count) {
    products.begin(rows);
    products.score(s.queries[tile][0], s.scores[0], count, [&](int64_t i) {
      return pages.keys(block(start + i), kv_head, offset(start + i));
    });
    softmax(tile, rows, allowed, count, start == 0);
    products.mix(s.weights[0], s.out[tile][0], count, start == 0, [&](int64_t i) {
      const int64_t position = start + i;
      return position == last_step ? s.last_values : pages.values(block(position), kv_head, offset(position));
    });
  }

  void store(int tile, int row, bf16* to) const {
    const float norm = 1.0f / s.sum[tile][row];
    for (int i = 0; i < DIM; i += LANES) store_bf16(to + i, load_row(s.out[tile][row] + i) * norm);
  }

 private:
  // Scores made weights, and what was summed up before made to fit.
  void softmax(int tile, int rows, const int64_t* allowed, int64_t count, bool first_chunk) {
    constexpr float LEAST = -INFINITY;
    for (int row = 0; row < rows; row++) {
      const float* scores = s.scores[row];
      Factor* weights = s.weights[row];
      const int64_t seen = std::clamp<int64_t>(allowed[row], 0, count), whole = seen / LANES * LANES;
      const int rest = seen - whole;
      Row best = all(LEAST);
      for (int64_t i = 0; i < whole; i += LANES) best = max(best, load_row(scores + i));
      if (rest) best = max(best, first(rest, load_row(scores + whole), LEAST));
      const float before = s.highest[tile][row], now = std::max(before, highest(best) * scale);
      Row total = all(0.0f);
      for (int64_t i = 0; i < whole; i += LANES) {
        const Row weight = exp2(load_row(scores + i) * scale - now);
        total += weight;
        store_factors(weights + i, weight);
      }
      if (rest) {
        const Row weight = first(rest, exp2(load_row(scores + whole) * scale - now), 0.0f);
        total += weight;
        store_factors(weights + whole, weight);
      }
      for (int64_t i = whole + (rest ? LANES : 0); i < count; i += LANES) store_factors(weights + i, all(0.0f));
      const float shrink = std::exp2(before - now);
      s.sum[tile][row] = s.sum[tile][row] * shrink + sum(total);
      s.highest[tile][row] = now;
      if (now == before || first_chunk) continue;
      for (int i = 0; i < DIM; i += LANES) {
        float* out = s.out[tile][row] + i;
        ::store(out, load_row(out) * shrink);
      }
    }
  }

  int64_t block(int64_t position) const { return table[position / pages.block_size]; }
  int64_t offset(int64_t position) const { return position % pages.block_size; }

  Scratch<DIM>& s;
  Products<DIM>& products;
  const Pages& pages;
  const int32_t* table;
  const int64_t kv_head, last_step;
  const float scale;
};

template <int DIM>
void attend(const Item& item, Products<DIM>& products, const Pages& pages, const bf16* queries, int64_t query_stride,
            bf16* out, int64_t group, const int32_t* table, int64_t first_token, int64_t computed, int64_t length,
            float scale) {
  static thread_local Scratch<DIM> scratch;
  Attention<DIM> attention(scratch, products, pages, table, item.kv_head, length, scale);
  const int64_t heads = pages.kv_heads * group;
  const int tiles = (item.count + QUERIES - 1) / QUERIES;
  const auto head_of = [&](int64_t row) { return item.kv_head * group + row % group; };
  for (int64_t i = 0; i < item.count; i++) {
    const int64_t row = item.first + i, tile = i / QUERIES, at = i % QUERIES;
    const bf16* query = queries + (first_token + row / group) * query_stride + head_of(row) * DIM;
    for (int j = 0; j < DIM; j += LANES) store_factors(scratch.queries[tile][at] + j, load_bf16(query + j));
    scratch.highest[tile][at] = -INFINITY;
    scratch.sum[tile][at] = 0.0f;
  }
  const int64_t end = computed + (item.first + item.count - 1) / group + 1;
  for (int64_t start = 0; start < end; start += CHUNK) {
    for (int tile = 0; tile < tiles; tile++) {
      const int rows = std::min<int64_t>(QUERIES, item.count - tile * QUERIES);
      int64_t allowed[QUERIES];
      for (int row = 0; row < rows; row++)
        allowed[row] = computed + (item.first + tile * QUERIES + row) / group + 1 - start;
      if (allowed[rows - 1] <= 0) continue;
      const int64_t count = (std::min<int64_t>(CHUNK, allowed[rows - 1]) + STEP - 1) / STEP * STEP;
      attention.run(tile, rows, allowed, start, count);
    }
  }
  for (int64_t i = 0; i < item.count; i++) {
    const int64_t row = item.first + i;
    attention.store(i / QUERIES, i % QUERIES, out + ((first_token + row / group) * heads + head_of(row)) * DIM);
  }
}

template <int DIM>
void attend_all(const std::vector<Item>& items, const Pages& pages, const bf16* queries, int64_t query_stride, bf16* out,
                int64_t group, const int32_t* query_starts, const int32_t* seq_lens, const int32_t* tables,
                int64_t table_width, float scale, int threads) {
#pragma omp parallel num_threads(threads)
  {
    Products<DIM> products(CHUNK);
#pragma omp for schedule(dynamic, 1)
    for (size_t i = 0; i < items.size(); i++) {
      const Item& item = items[i];
      const int64_t first_token = query_starts[item.sequence], length = seq_lens[item.sequence];
      const int64_t computed = length - (query_starts[item.sequence + 1] - first_token);
      attend<DIM>(item, products, pages, queries, query_stride, out, group, tables + item.sequence * table_width,
                  first_token, computed, length, scale);
    }
  }
}

}  // namespace

// out[tokens, heads, head_dim] for queries[tokens, heads, head_dim], whose tokens are query_stride elements apart.
// head_dim is 64 or 128, block_size a multiple of 32. tables[sequences, table_width].
extern "C" void paged_attention(bf16* out, const bf16* queries, int64_t query_stride, bf16* cache, int64_t heads,
                                int64_t kv_heads, int64_t head_dim, int64_t block_size, const int32_t* query_starts,
                                const int32_t* seq_lens, const int32_t* tables, int64_t table_width, int64_t sequences,
                                float scale, int threads) {
  const Pages pages{cache, kv_heads, block_size, head_dim};
  const int64_t group = heads / kv_heads, most = MAX_TILES * QUERIES;
  std::vector<Item> items;
  // The last first: long prompts come after single tokens, and the work that ends a step should be small.
  for (int64_t sequence = sequences - 1; sequence >= 0; sequence--) {
    const int64_t rows = (query_starts[sequence + 1] - query_starts[sequence]) * group;
    for (int64_t first = (rows - 1) / most * most; first >= 0 && rows > 0; first -= most)
      for (int64_t kv_head = 0; kv_head < kv_heads; kv_head++)
        items.push_back({sequence, kv_head, first, std::min(most, rows - first)});
  }
  auto* run = head_dim == 64 ? attend_all<64> : attend_all<128>;
  run(items, pages, queries, query_stride, out, group, query_starts, seq_lens, tables, table_width, scale, threads);
}
