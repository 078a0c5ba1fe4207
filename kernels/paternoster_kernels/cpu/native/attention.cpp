// Causal grouped-query attention over the paged cache in bfloat16, or in int8 that is widened on the way; softmax in
// float32, online over chunks.
//
// A row is a (token, head) pair; rows that read one key head are multiplied together. Keys and values lie in the cache
// as tiles already, so a page goes from memory into products without a detour. Chunks begin at multiples of their
// length, whatever a row sees of them, so that a row's sums are the same beside any others.
#include <algorithm>
#include <cmath>
#include <vector>

#include "operations.h"
#include "pages.h"
#if defined(__AMX_TILE__)
#include "attention_amx.h"
#else
#include "attention_vectors.h"
#endif

namespace {

constexpr int CHUNK = 512;    // tokens whose scores are kept at once, in a near cache; fewer were slower
constexpr int MAX_TILES = 8;  // tiles of QUERIES rows of a work item

struct Scratch {
  alignas(64) Factor queries[MAX_TILES][QUERIES * MAX_DIM];
  alignas(64) float scores[QUERIES][CHUNK];
  alignas(64) Factor weights[QUERIES][CHUNK];
  alignas(64) float out[MAX_TILES][QUERIES * MAX_DIM];
  alignas(64) bf16 last_values[MAX_DIM * STEP];
  alignas(64) bf16 widened[CHUNK * 2 * MAX_DIM];  // the chunk's steps where they are int8
  alignas(64) float key_scales[CHUNK], value_scales[CHUNK];
  float highest[MAX_TILES][QUERIES], sum[MAX_TILES][QUERIES];
  bool begun[MAX_TILES];
};

// What is the same for all rows of a layer.
struct Layer {
  Pages pages;
  int64_t group;  // query heads of a key head
  float scale;
  int64_t window;     // a token sees so many with itself; 0: all before it
  float softcap;      // 0 for none
  const bf16* sinks;  // [heads]: scores of one more key, whose value is nothing; or null
};

// New tokens of one sequence, the last ones of `length`.
struct Sequence {
  const int32_t* table;
  int64_t first_token, computed, length;
};

// Rows first..first + count of one sequence and key head; row r is head r % group of new token r / group.
struct Item {
  int64_t sequence, kv_head, first, count;
};

// What a tile's rows see of a chunk: tokens low[row] to high[row]. Both rise from row to row.
struct Seen {
  int64_t low[QUERIES], high[QUERIES];
};

class Attention {
 public:
  Attention(Scratch& scratch, Products& products, const Layer& layer, const Sequence& sequence, int64_t kv_head)
      : s(scratch), products(products), layer(layer), pages(layer.pages), dim(pages.head_dim), table(sequence.table),
        kv_head(kv_head), last_step(sequence.length / STEP * STEP) {
    // What was never written may be no number, and nothing times that is no number either.
    if (pages.quantized || sequence.length % STEP == 0) return;
    const bf16* values = pages.step<bf16>(block(last_step), kv_head, offset(last_step)) + STEP * dim;
    const int64_t count = sequence.length % STEP;
    for (int64_t i = 0; i < dim * STEP; i += LINE) {
      const int64_t token = i / LINE % ROWS * 2;
      const uint32_t kept = token + 1 < count ? 0xffffffffu : token < count ? 0xffffu : 0u;
      for (int64_t lane = 0; lane < LINE; lane += 2 * LANES)
        ::store(s.last_values + i + lane, load<Words>(values + i + lane) & kept);
    }
  }

  // The query of a row, a head's.
  void begin(int tile, int row, const bf16* query, int64_t head) {
    const int64_t stride = Products::query_stride(dim);
    Factor* to = s.queries[tile] + row * stride;
    for (int64_t i = 0; i < dim; i += LANES) store_factors(to + i, load_bf16(query + i));
    std::fill(to + dim, to + stride, Factor());
    s.highest[tile][row] = layer.sinks ? load_one(layer.sinks + head) * LOG2E : -INFINITY;
    s.sum[tile][row] = layer.sinks ? 1.0f : 0.0f;
    s.begun[tile] = false;
  }

  // Steps from..to of the chunk that begins at token `start`, where they are int8: once for all tiles.
  void widen(int64_t start, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i += STEP) {
      const int64_t at = block(start + i), in = offset(start + i);
      const int8_t* numbers = pages.step<int8_t>(at, kv_head, in);
      const int64_t next = std::min(i + STEP, to - STEP), bytes = STEP * 2 * dim;
      const int8_t* upcoming = pages.step<int8_t>(block(start + next), kv_head, offset(start + next));
      // The processor looks ahead within 4 KiB only, which is one step.
      for (int64_t j = 0; j < bytes; j += 128) {
        __builtin_prefetch(upcoming + j);
        __builtin_prefetch(upcoming + j + 64);
        widen_int8(numbers + j, s.widened + i * 2 * dim + j, 128);
      }
      const bf16* scales = pages.scale(at, kv_head, in);
      for (int64_t lane = 0; lane < STEP; lane += LANES) {
        ::store(s.key_scales + i + lane, load_bf16(scales + lane));
        ::store(s.value_scales + i + lane, load_bf16(scales + pages.block_size + lane));
      }
    }
  }

  // The first `rows` rows of a tile to what they see of the chunk that begins at token `start`.
  void run(int tile, int rows, const Seen& seen, int64_t start) {
    const int64_t from = seen.low[0] / STEP * STEP, to = (seen.high[rows - 1] + STEP - 1) / STEP * STEP;
    if (seen.low[0] >= seen.high[rows - 1]) return;
    products.begin(rows);
    const auto step_at = [&](int64_t i) -> const bf16* {
      const int64_t position = start + from + i;
      return pages.quantized ? s.widened + (from + i) * 2 * dim
                             : pages.step<bf16>(block(position), kv_head, offset(position));
    };
    products.score(s.queries[tile], s.scores[0] + from, to - from, step_at);
    for (int row = 0; row < rows; row++) softmax(tile, row, seen.low[row], seen.high[row], from, to);
    const int64_t masked = pages.quantized ? -1 : last_step - start - from;
    products.mix(s.weights[0] + from, s.out[tile], to - from, !s.begun[tile], [&](int64_t i) {
      return i == masked ? s.last_values : step_at(i) + STEP * dim;
    });
    s.begun[tile] = true;
  }

  void store(int tile, int row, bf16* to) const {
    const float norm = 1.0f / s.sum[tile][row];
    const float* out = s.out[tile] + row * dim;
    for (int64_t i = 0; i < dim; i += LANES) store_bf16(to + i, load_row(out + i) * norm);
  }

 private:
  // A row's scores from..to made weights, nothing but for tokens low..high, and what was summed up before made to fit.
  void softmax(int tile, int row, int64_t low, int64_t high, int64_t from, int64_t to) {
    float* scores = s.scores[row];
    Factor* weights = s.weights[row];
    const int64_t begin = std::min(low / LANES * LANES, to), end = (high + LANES - 1) / LANES * LANES;
    for (int64_t i = from; i < begin; i += LANES) store_factors(weights + i, all(0.0f));
    for (int64_t i = std::max(begin, end); i < to; i += LANES) store_factors(weights + i, all(0.0f));
    if (low >= high) {
      for (int64_t i = begin; i < end; i += LANES) store_factors(weights + i, all(0.0f));
      return;
    }
    const auto seen = [&](int64_t i, Row values, float other) {
      return i >= low && i + LANES <= high ? values : within(low - i, high - i, values, other);
    };
    const float scale = scaled(scores, begin, end);
    Row best = all(-INFINITY);
    for (int64_t i = begin; i < end; i += LANES) best = max(best, seen(i, load_row(scores + i), -INFINITY));
    const float before = s.highest[tile][row], now = std::max(before, highest(best) * scale);
    Row total = all(0.0f);
    for (int64_t i = begin; i < end; i += LANES) {
      const Row weight = seen(i, exp2(load_row(scores + i) * scale - now), 0.0f);
      total += weight;
      store_factors(weights + i, pages.quantized ? seen(i, weight * load_row(s.value_scales + i), 0.0f) : weight);
    }
    const float shrink = std::exp2(before - now);
    s.sum[tile][row] = s.sum[tile][row] * shrink + sum(total);
    s.highest[tile][row] = now;
    if (now == before || !s.begun[tile]) return;
    for (int64_t i = 0; i < dim; i += LANES) {
      float* out = s.out[tile] + row * dim + i;
      ::store(out, load_row(out) * shrink);
    }
  }

  // What makes these scores exponents of 2; those with a cap are, afterwards.
  float scaled(float* scores, int64_t begin, int64_t end) const {
    if (pages.quantized)
      for (int64_t i = begin; i < end; i += LANES)
        ::store(scores + i, load_row(scores + i) * load_row(s.key_scales + i));
    if (layer.softcap == 0.0f) return layer.scale * LOG2E;
    const float inner = layer.scale / layer.softcap, outer = layer.softcap * LOG2E;
    for (int64_t i = begin; i < end; i += LANES) ::store(scores + i, tanh(load_row(scores + i) * inner) * outer);
    return 1.0f;
  }

  int64_t block(int64_t position) const { return table[position / pages.block_size]; }
  int64_t offset(int64_t position) const { return position % pages.block_size; }

  Scratch& s;
  Products& products;
  const Layer& layer;
  const Pages& pages;
  const int64_t dim;
  const int32_t* table;
  const int64_t kv_head, last_step;
};

void attend(const Item& item, const Sequence& sequence, Products& products, const Layer& layer, const bf16* queries,
            int64_t query_stride, bf16* out) {
  static thread_local Scratch scratch;
  Attention attention(scratch, products, layer, sequence, item.kv_head);
  const int64_t dim = layer.pages.head_dim, group = layer.group, heads = layer.pages.kv_heads * group;
  const int tiles = (item.count + QUERIES - 1) / QUERIES;
  const auto head_of = [&](int64_t row) { return item.kv_head * group + row % group; };
  const auto token_of = [&](int64_t row) { return sequence.first_token + row / group; };
  const auto position_of = [&](int64_t row) { return sequence.computed + row / group; };
  const auto first_seen = [&](int64_t row) {
    return layer.window ? std::max<int64_t>(position_of(row) - layer.window + 1, 0) : 0;
  };
  for (int64_t i = 0; i < item.count; i++) {
    const int64_t row = item.first + i;
    const bf16* query = queries + token_of(row) * query_stride + head_of(row) * dim;
    attention.begin(i / QUERIES, i % QUERIES, query, head_of(row));
  }
  const int64_t end = position_of(item.first + item.count - 1) + 1;
  for (int64_t start = first_seen(item.first) / CHUNK * CHUNK; start < end; start += CHUNK) {
    if (layer.pages.quantized) {
      const int64_t from = std::max<int64_t>(first_seen(item.first) - start, 0) / STEP * STEP;
      attention.widen(start, from, (std::min<int64_t>(CHUNK, end - start) + STEP - 1) / STEP * STEP);
    }
    for (int tile = 0; tile < tiles; tile++) {
      const int rows = std::min<int64_t>(QUERIES, item.count - tile * QUERIES);
      Seen seen;
      for (int i = 0; i < rows; i++) {
        const int64_t row = item.first + tile * QUERIES + i;
        seen.low[i] = std::clamp<int64_t>(first_seen(row) - start, 0, CHUNK);
        seen.high[i] = std::clamp<int64_t>(position_of(row) + 1 - start, 0, CHUNK);
      }
      attention.run(tile, rows, seen, start);
    }
  }
  for (int64_t i = 0; i < item.count; i++) {
    const int64_t row = item.first + i;
    attention.store(i / QUERIES, i % QUERIES, out + (token_of(row) * heads + head_of(row)) * dim);
  }
}

}  // namespace

// out[tokens, heads, head_dim] for queries[tokens, heads, head_dim], whose tokens are query_stride elements apart.
// cache: bfloat16, or int8 with scales where it is quantized. head_dim is a multiple of 16 up to 256, block_size one of
// 32. tables[sequences, table_width]. window: a token sees so many with itself, all with 0; softcap: scores become
// softcap * tanh(score / softcap), 0 for none; sinks[heads]: the score of one more key with a value of nothing, or
// null.
extern "C" void paged_attention(bf16* out, const bf16* queries, int64_t query_stride, void* cache, int quantized,
                                int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t block_size,
                                const int32_t* query_starts, const int32_t* seq_lens, const int32_t* tables,
                                int64_t table_width, int64_t sequences, float scale, int64_t window, float softcap,
                                const bf16* sinks, int threads) {
  const Pages pages{cache, kv_heads, block_size, head_dim, quantized != 0};
  const Layer layer{pages, heads / kv_heads, scale, window, softcap, sinks};
  const int64_t most = MAX_TILES * QUERIES;
  std::vector<Item> items;
  // The last first: long prompts come after single tokens, and the work that ends a step should be small.
  for (int64_t sequence = sequences - 1; sequence >= 0; sequence--) {
    const int64_t rows = (query_starts[sequence + 1] - query_starts[sequence]) * layer.group;
    for (int64_t first = (rows - 1) / most * most; first >= 0 && rows > 0; first -= most)
      for (int64_t kv_head = 0; kv_head < kv_heads; kv_head++)
        items.push_back({sequence, kv_head, first, std::min(most, rows - first)});
  }
#pragma omp parallel num_threads(threads)
  {
    Products products(CHUNK, head_dim);
#pragma omp for schedule(dynamic, 1)
    for (size_t i = 0; i < items.size(); i++) {
      const int64_t at = items[i].sequence, first_token = query_starts[at], length = seq_lens[at];
      const Sequence sequence{tables + at * table_width, first_token, length - (query_starts[at + 1] - first_token),
                              length};
      attend(items[i], sequence, products, layer, queries, query_stride, out);
    }
  }
}
