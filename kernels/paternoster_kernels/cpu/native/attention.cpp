// Causal grouped-query attention over the paged cache with AMX bfloat16 tiles; softmax in float32, online over chunks.
//
// A tile of queries is 16 rows: (token, head) pairs that read one key head. Keys and values lie in the cache as tiles
// already, so a page goes from memory into products without a detour.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "pages.h"

namespace {

constexpr int CHUNK = 512;    // tokens whose scores are kept at once, in a near cache; fewer were slower
constexpr int MAX_TILES = 8;  // query tiles of a work item
constexpr int RIGHT = 5;      // the first tile of those that hold keys or values; those before it hold rows

template <int DIM>
struct Scratch {
  alignas(64) bf16 queries[MAX_TILES][ROWS][DIM];
  alignas(64) float scores[ROWS][CHUNK];
  alignas(64) bf16 weights[ROWS][CHUNK];
  alignas(64) float out[MAX_TILES][ROWS][DIM];
  float highest[MAX_TILES][ROWS], sum[MAX_TILES][ROWS];
};

// Rows first..first + count of one sequence and key head; row r is head r % group of new token r / group.
struct Item {
  int64_t sequence, kv_head, first, count;
};

template <int DIM>
class Attention {
 public:
  Attention(Scratch<DIM>& scratch, const Pages& pages, const int32_t* table, int64_t kv_head, float scale)
      : s(scratch), pages(pages), table(table), kv_head(kv_head), scale(scale * LOG2E) {}

  // Scores of count tokens from start, in whole steps; the last may be beyond the sequence.
  void score(int tile, int64_t start, int64_t count) {
    for (int64_t i = 0; i < count; i += STEP) {
      const bf16* keys = pages.keys(block(start + i), kv_head, offset(start + i));
      _tile_zero(0);
      _tile_zero(1);
      for (int part = 0; part < DIM / STEP; part++) {
        _tile_loadd(4, s.queries[tile][0] + part * STEP, DIM * sizeof(bf16));
        _tile_loadd(5, keys + part * TILE, 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, keys + (DIM / STEP + part) * TILE, 64);
        _tile_dpbf16ps(1, 4, 6);
      }
      _tile_stored(0, &s.scores[0][i], CHUNK * sizeof(float));
      _tile_stored(1, &s.scores[0][i + ROWS], CHUNK * sizeof(float));
    }
  }

  // Scores of the first `rows` rows made weights, and what was summed up before made to fit; allowed[row]: how many of
  // the chunk's tokens a row may see.
  void softmax(int tile, int rows, const int64_t* allowed, int64_t count, bool first) {
    for (int row = 0; row < rows; row++) {
      const float* scores = s.scores[row];
      bf16* weights = s.weights[row];
      const int64_t seen = std::clamp<int64_t>(allowed[row], 0, count), whole = seen / ROWS * ROWS;
      const __mmask16 rest = (1 << (seen - whole)) - 1;
      Row best = _mm512_set1_ps(-INFINITY);
      for (int64_t i = 0; i < whole; i += ROWS) best = _mm512_max_ps(best, _mm512_load_ps(scores + i));
      if (rest) best = _mm512_mask_max_ps(best, rest, best, _mm512_load_ps(scores + whole));
      const float before = s.highest[tile][row], now = std::max(before, _mm512_reduce_max_ps(best) * scale);
      const Row top = _mm512_set1_ps(now), factor = _mm512_set1_ps(scale);
      Row total = _mm512_setzero_ps();
      for (int64_t i = 0; i < whole; i += ROWS) {
        const Row weight = exp2(_mm512_fmsub_ps(_mm512_load_ps(scores + i), factor, top));
        total = _mm512_add_ps(total, weight);
        store_bf16(weights + i, weight);
      }
      if (rest) {
        const Row weight = _mm512_maskz_mov_ps(rest, exp2(_mm512_fmsub_ps(_mm512_load_ps(scores + whole), factor, top)));
        total = _mm512_add_ps(total, weight);
        store_bf16(weights + whole, weight);
      }
      for (int64_t i = whole + (rest ? ROWS : 0); i < count; i += ROWS) store_bf16(weights + i, _mm512_setzero_ps());
      const float shrink = std::exp2(before - now);
      s.sum[tile][row] = s.sum[tile][row] * shrink + _mm512_reduce_add_ps(total);
      s.highest[tile][row] = now;
      if (now == before || first) continue;
      for (int i = 0; i < DIM; i += ROWS) {
        float* out = s.out[tile][row] + i;
        _mm512_store_ps(out, _mm512_mul_ps(_mm512_load_ps(out), _mm512_set1_ps(shrink)));
      }
    }
  }

  // Adds weights x values, 64 dimensions at a time, or begins with them.
  void mix(int tile, int64_t start, int64_t count, bool first) {
    for (int part = 0; part < DIM / ROWS; part += 4) {
      float* out = s.out[tile][0] + part * ROWS;
      constexpr int64_t stride = DIM * sizeof(float);
      if (first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      } else {
        _tile_loadd(0, out, stride);
        _tile_loadd(1, out + ROWS, stride);
        _tile_loadd(2, out + 2 * ROWS, stride);
        _tile_loadd(3, out + 3 * ROWS, stride);
      }
      for (int64_t i = 0; i < count; i += STEP) {
        const bf16* values = pages.values(block(start + i), kv_head, offset(start + i)) + part * TILE;
        _tile_loadd(4, &s.weights[0][i], CHUNK * sizeof(bf16));
        _tile_loadd(5, values, 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, values + TILE, 64);
        _tile_dpbf16ps(1, 4, 6);
        _tile_loadd(5, values + 2 * TILE, 64);
        _tile_dpbf16ps(2, 4, 5);
        _tile_loadd(6, values + 3 * TILE, 64);
        _tile_dpbf16ps(3, 4, 6);
      }
      _tile_stored(0, out, stride);
      _tile_stored(1, out + ROWS, stride);
      _tile_stored(2, out + 2 * ROWS, stride);
      _tile_stored(3, out + 3 * ROWS, stride);
    }
  }

  void store(int tile, int row, bf16* to) {
    const Row norm = _mm512_set1_ps(1.0f / s.sum[tile][row]);
    for (int i = 0; i < DIM; i += ROWS) store_bf16(to + i, _mm512_mul_ps(_mm512_load_ps(s.out[tile][row] + i), norm));
  }

 private:
  int64_t block(int64_t position) const { return table[position / pages.block_size]; }
  int64_t offset(int64_t position) const { return position % pages.block_size; }

  Scratch<DIM>& s;
  const Pages& pages;
  const int32_t* table;
  const int64_t kv_head;
  const float scale;
};

template <int DIM>
void attend(const Item& item, const Pages& pages, const bf16* queries, int64_t query_stride, bf16* out, int64_t group,
            const int32_t* table, int64_t first_token, int64_t computed, float scale) {
  static thread_local Scratch<DIM> scratch;
  Attention<DIM> attention(scratch, pages, table, item.kv_head, scale);
  const int64_t heads = pages.kv_heads * group;
  const int tiles = (item.count + ROWS - 1) / ROWS;
  const auto head_of = [&](int64_t row) { return item.kv_head * group + row % group; };
  for (int64_t i = 0; i < item.count; i++) {
    const int64_t row = item.first + i;
    const bf16* query = queries + (first_token + row / group) * query_stride + head_of(row) * DIM;
    std::memcpy(scratch.queries[i / ROWS][i % ROWS], query, DIM * sizeof(bf16));
    scratch.highest[i / ROWS][i % ROWS] = -INFINITY;
    scratch.sum[i / ROWS][i % ROWS] = 0.0f;
  }
  const int64_t end = computed + (item.first + item.count - 1) / group + 1;
  for (int64_t start = 0; start < end; start += CHUNK) {
    for (int tile = 0; tile < tiles; tile++) {
      const int rows = std::min<int64_t>(ROWS, item.count - tile * ROWS);
      int64_t allowed[ROWS];
      for (int row = 0; row < rows; row++)
        allowed[row] = computed + (item.first + tile * ROWS + row) / group + 1 - start;
      if (allowed[rows - 1] <= 0) continue;
      const int64_t count = (std::min<int64_t>(CHUNK, allowed[rows - 1]) + STEP - 1) / STEP * STEP;
      attention.score(tile, start, count);
      attention.softmax(tile, rows, allowed, count, start == 0);
      attention.mix(tile, start, count, start == 0);
    }
  }
  for (int64_t i = 0; i < item.count; i++) {
    const int64_t row = item.first + i;
    attention.store(i / ROWS, i % ROWS, out + ((first_token + row / group) * heads + head_of(row)) * DIM);
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
  const int64_t group = heads / kv_heads, most = MAX_TILES * ROWS;
  std::vector<Item> items;
  // The last first: long prompts come after single tokens, and the work that ends a step should be small.
  for (int64_t sequence = sequences - 1; sequence >= 0; sequence--) {
    const int64_t rows = (query_starts[sequence + 1] - query_starts[sequence]) * group;
    for (int64_t first = (rows - 1) / most * most; first >= 0 && rows > 0; first -= most)
      for (int64_t kv_head = 0; kv_head < kv_heads; kv_head++)
        items.push_back({sequence, kv_head, first, std::min(most, rows - first)});
  }
#pragma omp parallel num_threads(threads)
  {
    static thread_local TileConfig config;
    int configured = 0;
#pragma omp for schedule(dynamic, 1)
    for (size_t i = 0; i < items.size(); i++) {
      const Item& item = items[i];
      // Single tokens have few rows: their products take as much less time.
      const int rows = std::min<int64_t>(ROWS, item.count);
      if (rows != configured) {
        for (int tile = 0; tile < RIGHT; tile++) config.rows[tile] = rows;
        _tile_loadconfig(&config);
        configured = rows;
      }
      const int64_t first_token = query_starts[item.sequence];
      const int64_t computed = seq_lens[item.sequence] - (query_starts[item.sequence + 1] - first_token);
      const int32_t* table = tables + item.sequence * table_width;
      auto* run = head_dim == 64 ? attend<64> : attend<128>;
      run(item, pages, queries, query_stride, out, group, table, first_token, computed, scale);
    }
    _tile_release();
  }
}
