// Causal grouped-query attention over the paged cache with AMX bfloat16 tiles; softmax in float32, online over chunks.
//
// A tile of queries is 16 rows: (token, head) pairs that read one key head. Scores come out transposed, keys times
// queries, because keys then are the left operand and are loaded from their pages as they lie. Values must be the right
// operand, which wants pairs of tokens interleaved; that is done once a chunk for all tiles of a work item.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tiles.h"
#include "vectors.h"

namespace {

constexpr int STEP = 32;       // tokens that one tile instruction sums over
constexpr int CHUNK = 192;     // tokens whose scores and values are kept at once, in a near cache
constexpr int MAX_TILES = 8;   // query tiles of a work item
constexpr int FEW_ROWS = 4;    // up to here columns are gathered one by one instead of transposing

struct Cache {
  const bf16* pages;
  int64_t kv_heads, block_size, head_dim;
  const bf16* token(const int32_t* table, int64_t kv_head, int64_t position) const {
    const int64_t block = table[position / block_size];
    return pages + ((block * kv_heads + kv_head) * block_size + position % block_size) * 2 * head_dim;
  }
};

template <int DIM>
struct Scratch {
  alignas(64) float transposed[CHUNK][ROWS];
  alignas(64) float scores[ROWS][CHUNK];
  alignas(64) bf16 weights[CHUNK / STEP][ROWS][STEP];
  alignas(64) bf16 values[CHUNK / STEP][DIM / 16][ROWS][STEP];
  alignas(64) bf16 queries[MAX_TILES][DIM / STEP][ROWS][STEP];
  alignas(64) float product[4][ROWS][16];
  alignas(64) float out[MAX_TILES][ROWS][DIM];  // dimensions in the order that interleaving leaves
  float highest[MAX_TILES][ROWS], sum[MAX_TILES][ROWS], shrink[ROWS];
};

// Rows first..first + count of one sequence and key head; row r is head r % group of new token r / group.
struct Item {
  int64_t sequence, kv_head, first, count;
};

void transpose(const float (*from)[ROWS], float* to, int64_t to_stride) {
  __m512 a[16], b[16];
  for (int i = 0; i < 16; i++) a[i] = _mm512_load_ps(from[i]);
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    const __m512d w = _mm512_castps_pd(b[i]), x = _mm512_castps_pd(b[i + 1]);
    const __m512d y = _mm512_castps_pd(b[i + 2]), z = _mm512_castps_pd(b[i + 3]);
    a[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(w, y));
    a[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(w, y));
    a[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, z));
    a[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, z));
  }
  for (int i = 0; i < 4; i++) {
    b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
    b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
    b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
    b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; i++) {
    _mm512_storeu_ps(to + i * to_stride, _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88));
    _mm512_storeu_ps(to + (i + 8) * to_stride, _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd));
    _mm512_storeu_ps(to + (i + 4) * to_stride, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0x88));
    _mm512_storeu_ps(to + (i + 12) * to_stride, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0xdd));
  }
}

template <int DIM>
class Attention {
 public:
  Attention(Scratch<DIM>& scratch, const Cache& cache, const int32_t* table, int64_t kv_head, float scale)
      : s(scratch), cache(cache), table(table), kv_head(kv_head), scale(scale * LOG2E) {}

  // Queries of one tile as right operand: pairs of dimensions down, rows across.
  void load_queries(int tile, int row, const bf16* query) {
    for (int step = 0; step < DIM / STEP; step++)
      for (int pair = 0; pair < ROWS; pair++)
        *(uint32_t*)&s.queries[tile][step][pair][2 * row] = *(const uint32_t*)(query + step * STEP + 2 * pair);
  }

  // Values of one step as right operand: pairs of tokens down, dimensions across. Prefetching pages gained nothing.
  void interleave_values(int64_t i, const bf16* values) {
    for (int pair = 0; pair < ROWS; pair++, values += 4 * DIM)
      for (int j = 0; j < DIM / STEP; j++) {
        const __m512i even = _mm512_loadu_si512(values + j * STEP);
        const __m512i odd = _mm512_loadu_si512(values + 2 * DIM + j * STEP);
        _mm512_store_si512(s.values[i / STEP][2 * j][pair], _mm512_unpacklo_epi16(even, odd));
        _mm512_store_si512(s.values[i / STEP][2 * j + 1][pair], _mm512_unpackhi_epi16(even, odd));
      }
  }

  // Scores, transposed, of count tokens from start, in whole steps; the last may be beyond the sequence.
  // The first tile to come by also takes the values along, so that a page is read once.
  void score(int tile, int64_t start, int64_t count, bool with_values) {
    _tile_loadd(4, s.queries[tile][0], 64);
    _tile_loadd(5, s.queries[tile][1], 64);
    if constexpr (DIM == 128) {
      _tile_loadd(6, s.queries[tile][2], 64);
      _tile_loadd(7, s.queries[tile][3], 64);
    }
    for (int64_t i = 0; i < count; i += STEP) {
      const bf16* keys = cache.token(table, kv_head, start + i);
      if (with_values) interleave_values(i, keys + DIM);
      for (int half = 0; half < STEP; half += ROWS, keys += ROWS * 2 * DIM) {
        _tile_zero(0);
        _tile_loadd(2, keys, 4 * DIM);
        _tile_loadd(3, keys + STEP, 4 * DIM);
        _tile_dpbf16ps(0, 2, 4);
        _tile_dpbf16ps(0, 3, 5);
        if constexpr (DIM == 128) {
          _tile_loadd(2, keys + 2 * STEP, 4 * DIM);
          _tile_loadd(3, keys + 3 * STEP, 4 * DIM);
          _tile_dpbf16ps(0, 2, 6);
          _tile_dpbf16ps(0, 3, 7);
        }
        _tile_stored(0, s.transposed[i + half], 64);
      }
    }
  }

  // Scores made weights of the first `rows` rows; allowed[row]: how many of the chunk's tokens a row may see.
  void softmax(int tile, int rows, const int64_t* allowed, int64_t count) {
    if (rows > FEW_ROWS)
      for (int64_t i = 0; i < count; i += 16) transpose(&s.transposed[i], &s.scores[0][i], CHUNK);
    const __m512i column = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                              _mm512_set1_epi32(ROWS));
    const Row nothing = _mm512_set1_ps(-INFINITY);
    for (int row = 0; row < rows; row++) {
      float* scores = s.scores[row];
      Row best = nothing;
      for (int64_t i = 0; i < count; i += 16) {
        const int64_t left = allowed[row] - i;
        const __mmask16 seen = left >= 16 ? 0xffff : left <= 0 ? 0 : (1 << left) - 1;
        const Row next =
            rows > FEW_ROWS ? _mm512_load_ps(scores + i) : _mm512_i32gather_ps(column, &s.transposed[i][row], 4);
        const Row masked = _mm512_mask_mov_ps(nothing, seen, next);
        best = _mm512_max_ps(best, masked);
        _mm512_store_ps(scores + i, masked);
      }
      const float before = s.highest[tile][row], now = std::max(before, _mm512_reduce_max_ps(best) * scale);
      const Row top = _mm512_set1_ps(now), factor = _mm512_set1_ps(scale);
      Row total = _mm512_setzero_ps();
      for (int64_t i = 0; i < count; i += STEP) {
        const Row first = exp2(_mm512_fmsub_ps(_mm512_load_ps(scores + i), factor, top));
        const Row second = exp2(_mm512_fmsub_ps(_mm512_load_ps(scores + i + 16), factor, top));
        total = _mm512_add_ps(total, _mm512_add_ps(first, second));
        store_bf16(&s.weights[i / STEP][row][0], first);
        store_bf16(&s.weights[i / STEP][row][16], second);
      }
      s.shrink[row] = std::exp2(before - now);
      s.sum[tile][row] = s.sum[tile][row] * s.shrink[row] + _mm512_reduce_add_ps(total);
      s.highest[tile][row] = now;
    }
  }

  // out = out * shrink + weights x values, 64 dimensions at a time.
  void mix(int tile, int rows, int64_t count, bool first) {
    for (int part = 0; part < DIM / 16; part += 4) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t i = 0; i < count / STEP; i++) {
        _tile_loadd(4, s.weights[i], 64);
        _tile_loadd(5, s.values[i][part], 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, s.values[i][part + 1], 64);
        _tile_dpbf16ps(1, 4, 6);
        _tile_loadd(5, s.values[i][part + 2], 64);
        _tile_dpbf16ps(2, 4, 5);
        _tile_loadd(6, s.values[i][part + 3], 64);
        _tile_dpbf16ps(3, 4, 6);
      }
      _tile_stored(0, s.product[0], 64);
      _tile_stored(1, s.product[1], 64);
      _tile_stored(2, s.product[2], 64);
      _tile_stored(3, s.product[3], 64);
      for (int row = 0; row < rows; row++)
        for (int j = 0; j < 4; j++) {
          float* to = s.out[tile][row] + (part + j) * 16;
          Row mixed = _mm512_load_ps(s.product[j][row]);
          if (!first) mixed = _mm512_fmadd_ps(_mm512_load_ps(to), _mm512_set1_ps(s.shrink[row]), mixed);
          _mm512_store_ps(to, mixed);
        }
    }
  }

  void store(int tile, int row, bf16* to) {
    const Row norm = _mm512_set1_ps(1.0f / s.sum[tile][row]);
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    for (int i = 0; i < DIM; i += STEP) {
      const Row a = _mm512_mul_ps(_mm512_load_ps(s.out[tile][row] + i), norm);
      const Row b = _mm512_mul_ps(_mm512_load_ps(s.out[tile][row] + i + 16), norm);
      store_bf16(to + i, _mm512_permutex2var_ps(a, low, b));
      store_bf16(to + i + 16, _mm512_permutex2var_ps(a, high, b));
    }
  }

  Scratch<DIM>& s;

 private:
  const Cache& cache;
  const int32_t* table;
  const int64_t kv_head;
  const float scale;
};

template <int DIM>
void attend(const Item& item, const Cache& cache, const bf16* queries, int64_t query_stride, bf16* out, int64_t group,
            const int32_t* table, int64_t first_token, int64_t computed, float scale) {
  static thread_local Scratch<DIM> scratch;
  Attention<DIM> attention(scratch, cache, table, item.kv_head, scale);
  const int64_t heads = cache.kv_heads * group;
  const int tiles = (item.count + ROWS - 1) / ROWS;
  const auto head_of = [&](int64_t row) { return item.kv_head * group + row % group; };
  for (int64_t i = 0; i < item.count; i++) {
    const int64_t row = item.first + i;
    const bf16* query = queries + (first_token + row / group) * query_stride + head_of(row) * DIM;
    attention.load_queries(i / ROWS, i % ROWS, query);
    scratch.highest[i / ROWS][i % ROWS] = -INFINITY;
    scratch.sum[i / ROWS][i % ROWS] = 0.0f;
  }
  const int64_t end = computed + (item.first + item.count - 1) / group + 1;
  for (int64_t start = 0; start < end; start += CHUNK) {
    bool with_values = true;
    for (int tile = tiles - 1; tile >= 0; tile--) {
      const int rows = std::min<int64_t>(ROWS, item.count - tile * ROWS);
      int64_t allowed[ROWS];
      for (int row = 0; row < rows; row++)
        allowed[row] = computed + (item.first + tile * ROWS + row) / group + 1 - start;
      if (allowed[rows - 1] <= 0) continue;
      const int64_t count = (std::min<int64_t>(CHUNK, allowed[rows - 1]) + STEP - 1) / STEP * STEP;
      // The last tile comes first: it sees the most tokens.
      attention.score(tile, start, count, with_values);
      with_values = false;
      attention.softmax(tile, rows, allowed, count);
      attention.mix(tile, rows, count, start == 0);
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
extern "C" void paged_attention(bf16* out, const bf16* queries, int64_t query_stride, const bf16* pages, int64_t heads,
                                int64_t kv_heads, int64_t head_dim, int64_t block_size, const int32_t* query_starts,
                                const int32_t* seq_lens, const int32_t* tables, int64_t table_width, int64_t sequences,
                                float scale, int threads) {
  const Cache cache{pages, kv_heads, block_size, head_dim};
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
    _tile_loadconfig(&TILES);
#pragma omp for schedule(dynamic, 1)
    for (size_t i = 0; i < items.size(); i++) {
      const Item& item = items[i];
      const int64_t first_token = query_starts[item.sequence];
      const int64_t computed = seq_lens[item.sequence] - (query_starts[item.sequence + 1] - first_token);
      const int32_t* table = tables + item.sequence * table_width;
      auto* run = head_dim == 64 ? attend<64> : attend<128>;
      run(item, cache, queries, query_stride, out, group, table, first_token, computed, scale);
    }
    _tile_release();
  }
}
