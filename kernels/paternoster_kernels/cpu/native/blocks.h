// Weights in blocks of few bits, GGUF files' and others, made the bfloat16 lines of tiles that products read.
//
// Packed are strips of 16 outputs. A strip has its blocks in the order of the inputs, and in a block the fields of the
// file's block; where the file has one item of a field, here are those of all 16 outputs side by side: [item, 16]. So a
// block takes the file's bytes, and a register holds the same item of as many outputs as it has lanes.
//
// Numbers are scaled in float32, where the products of a format's scales and numbers are exact or rounded once as in
// gguf's own `dequantize`, and rounded to bfloat16 once: lines are the very ones of the dequantised matrix.
#pragma once
#include "tiles.h"
#include "vectors.h"

typedef uint8_t Octets __attribute__((vector_size(LANES)));

// Of 16 floats at half precision those from `lane` on.
inline Row load_halves(const uint8_t* items, int lane) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(load<__m256i>(items + 2 * lane));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(load<__m128i>(items + 2 * lane));
#elif defined(__ARM_NEON)
  return (Row)vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(items + 2 * lane)));
#endif
}

inline Words load_words(const uint8_t* items, int item, int lane) {
  return load<Words>(items + 4 * (item * ROWS + lane));
}

inline Words load_octets(const uint8_t* items, int lane) {
  return __builtin_convertvector(load<Octets>(items + lane), Words);
}

inline Row to_floats(Words numbers) { return __builtin_convertvector((Ints)numbers, Row); }

// Byte `i` of each word, with its sign.
inline Words signed_byte(Words words, int i) { return (Words)((Ints)(words << (24 - 8 * i)) >> 24); }

// Even and odd inputs of a line, rounded to the nearest bfloat16 numbers, the even one of two.
inline void store_line(bf16* line, int lane, Row even, Row odd) {
#if defined(__AVX512BF16__)
  static constexpr auto place = [](int word) { return uint16_t(word / 2 + word % 2 * ROWS); };
  alignas(64) static constexpr uint16_t PLACES[32] = {
      place(0),  place(1),  place(2),  place(3),  place(4),  place(5),  place(6),  place(7),
      place(8),  place(9),  place(10), place(11), place(12), place(13), place(14), place(15),
      place(16), place(17), place(18), place(19), place(20), place(21), place(22), place(23),
      place(24), place(25), place(26), place(27), place(28), place(29), place(30), place(31)};
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
  store(line + 2 * lane, _mm512_permutexvar_epi16(load<__m512i>(PLACES), both));
#else
  const Words low = (Words)even, high = (Words)odd;
  const Words left = (low + 0x7fffu + (low >> 16 & 1u)) >> 16, right = high + 0x7fffu + (high >> 16 & 1u);
  store(line + 2 * lane, left | (right & 0xffff0000u));
#endif
}

// The two lines of four inputs, weight(i) each.
template <class Weight>
inline void store_four(bf16* lines, int lane, const Weight& weight) {
  store_line(lines, lane, weight(0), weight(1));
  store_line(lines + LINE, lane, weight(2), weight(3));
}

// Q4_0, Q4_1, Q5_0, Q5_1: a scale, the least number or none, the fifth bits or none, and low bits, where a byte has
// input i and input i + 16.
template <bool LEAST, bool FIFTH>
struct Plain {
  static constexpr int64_t INPUTS = 32, BYTES = 18 + 2 * LEAST + 4 * FIFTH;
  static constexpr uint32_t MIDDLE = LEAST ? 0 : FIFTH ? 16 : 8;

  static void unpack(const uint8_t* block, int lane, bf16* lines) {
    const Row scale = load_halves(block, lane);
    Row least = {};
    if constexpr (LEAST) least = load_halves(block + 2 * ROWS, lane);
    const uint8_t *fifths = block + (LEAST ? 4 : 2) * ROWS, *bytes = fifths + (FIFTH ? 4 : 0) * ROWS;
    Words fifth = {};
    if constexpr (FIFTH) fifth = load_words(fifths, 0, lane);
#pragma GCC unroll 4
    for (int item = 0; item < 4; item++) {
      const Words fours = load_words(bytes, item, lane);
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++)
        store_four(lines + (2 * item + 8 * half) * LINE, lane, [&](int i) {
          Words number = fours >> (8 * i + 4 * half) & 15u;
          if constexpr (FIFTH) number |= (fifth >> (4 * item + 16 * half + i) & 1u) << 4;
          const Row wide = to_floats(number - MIDDLE);
          return LEAST ? fma(wide, scale, least) : wide * scale;
        });
    }
  }
};

// Q8_0: a scale and numbers with a sign.
struct Bytes {
  static constexpr int64_t INPUTS = 32, BYTES = 34;

  static void unpack(const uint8_t* block, int lane, bf16* lines) {
    const Row scale = load_halves(block, lane);
#pragma GCC unroll 8
    for (int item = 0; item < 8; item++) {
      const Words fours = load_words(block + 2 * ROWS, item, lane);
      store_four(lines + 2 * item * LINE, lane, [&](int i) { return to_floats(signed_byte(fours, i)) * scale; });
    }
  }
};

// Q4_K, Q5_K: 8 parts of 32 inputs, with a scale and a least number of six bits each beside those of the block; bytes
// have an input of one part and one of the next.
template <bool FIFTH>
struct Parts {
  static constexpr int64_t INPUTS = 256, BYTES = 144 + 32 * FIFTH;

  static void unpack(const uint8_t* block, int lane, bf16* lines) {
    const Row scale = load_halves(block, lane), least = load_halves(block + 2 * ROWS, lane);
    const uint8_t *sixes = block + 4 * ROWS, *fifths = sixes + 12 * ROWS, *bytes = fifths + (FIFTH ? 32 : 0) * ROWS;
    const Words low = load_words(sixes, 0, lane), high = load_words(sixes, 1, lane), rest = load_words(sixes, 2, lane);
    for (int pair = 0; pair < 4; pair++) {
      Row scales[2], leasts[2];
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++) {
        const int part = 2 * pair + half, at = part % 4 * 8;
        // Of the last four parts two bits are above the six of the first four.
        const Words a = part < 4 ? low >> at & 63u : (rest >> at & 15u) | (low >> (at + 6) & 3u) << 4;
        const Words b = part < 4 ? high >> at & 63u : (rest >> (at + 4) & 15u) | (high >> (at + 6) & 3u) << 4;
        scales[half] = scale * to_floats(a), leasts[half] = least * to_floats(b);
      }
      for (int item = 0; item < 8; item++) {
        const Words fours = load_words(bytes, 8 * pair + item, lane);
        Words fifth = {};
        if constexpr (FIFTH) fifth = load_words(fifths, item, lane) >> 2 * pair;
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
          store_four(lines + (32 * pair + 16 * half + 2 * item) * LINE, lane, [&](int i) {
            Words number = fours >> (8 * i + 4 * half) & 15u;
            if constexpr (FIFTH) number |= (fifth >> (8 * i + half) & 1u) << 4;
            return fma(to_floats(number), scales[half], -leasts[half]);
          });
      }
    }
  }
};

// Q6_K: low four bits, high two bits, scales of 16 inputs each in 8 bits, and one of the block.
struct Sixes {
  static constexpr int64_t INPUTS = 256, BYTES = 210;

  static void unpack(const uint8_t* block, int lane, bf16* lines) {
    const uint8_t *lows = block, *highs = lows + 128 * ROWS, *eights = highs + 64 * ROWS;
    const Row scale = load_halves(eights + 16 * ROWS, lane);
    for (int run = 0; run < 4; run++) {
      // Inputs 16 * (run % 2) to 15 more of each of four parts of 32, in half run / 2 of the block.
      const int half = run / 2;
      Row scales[4];
#pragma GCC unroll 4
      for (int part = 0; part < 4; part++) {
        const int number = 8 * half + run % 2 + 2 * part;
        const Words bytes = load_words(eights, number / 4, lane) << (24 - number % 4 * 8);
        scales[part] = scale * to_floats((Words)((Ints)bytes >> 24));
      }
      for (int item = run % 2 * 4, end = item + 4; item < end; item++) {
        const Words first = load_words(lows, 16 * half + item, lane), next = load_words(lows, 16 * half + 8 + item, lane);
        const Words high = load_words(highs, 8 * half + item, lane);
#pragma GCC unroll 4
        for (int part = 0; part < 4; part++)
          store_four(lines + (64 * half + 16 * part + 2 * item) * LINE, lane, [&](int i) {
            const Words low = (part % 2 ? next : first) >> (8 * i + part / 2 * 4) & 15u;
            return to_floats((low | (high >> (8 * i + 2 * part) & 3u) << 4) - 32u) * scales[part];
          });
      }
    }
  }
};

// MXFP4: an exponent, and floats of four bits, where a byte has input i and input i + 16.
struct Floats {
  static constexpr int64_t INPUTS = 32, BYTES = 17;

  static void unpack(const uint8_t* block, int lane, bf16* lines) {
    // Of numbers that are twice as large; the least two have no power of two that is a normal float.
    const Words exponent = load_octets(block, lane);
    const Row scale = (Row)(exponent < 2 ? 0x200000u << exponent : (exponent - 1u) << 23);
#pragma GCC unroll 4
    for (int item = 0; item < 4; item++) {
      const Words fours = load_words(block + ROWS, item, lane);
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++)
        store_four(lines + (2 * item + 8 * half) * LINE, lane, [&](int i) {
          const Words bits = fours >> (8 * i + 4 * half), size = bits & 7u;
          // Twice 0, 0.5, 1, 1.5, 2, 3, 4, 6.
          const Words twice = size < 4 ? size : (2u | (size & 1u)) << ((size >> 1) - 1u);
          return (Row)((Words)(to_floats(twice) * scale) ^ (bits & 8u) << 28);
        });
    }
  }
};

// Four bits in groups with a zero point and a scale in float16 or bfloat16 (AWQ, GPTQ, compressed-tensors), in blocks as
// Q4_0's; the scale is said again for each block of a group.
template <bool HALF>
struct Grouped {
  static constexpr int64_t INPUTS = 32, BYTES = 19;

  static void unpack(const uint8_t* block, int lane, bf16* lines) {
    const Row scale = HALF ? load_halves(block, lane) : load_bf16((const bf16*)block + lane);
    const Words zero = load_octets(block + 2 * ROWS, lane);
#pragma GCC unroll 4
    for (int item = 0; item < 4; item++) {
      const Words fours = load_words(block + 3 * ROWS, item, lane);
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++)
        store_four(lines + (2 * item + 8 * half) * LINE, lane, [&](int i) {
          return to_floats((fours >> (8 * i + 4 * half) & 15u) - zero) * scale;
        });
    }
  }
};

// Floats of eight bits, e4m3, and a scale in float32.
struct Eights {
  static constexpr int64_t INPUTS = 32, BYTES = 36;

  static void unpack(const uint8_t* block, int lane, bf16* lines) {
    const Row scale = load_row((const float*)block + lane);
#pragma GCC unroll 8
    for (int item = 0; item < 8; item++) {
      const Words fours = load_words(block + 4 * ROWS, item, lane);
      store_four(lines + 2 * item * LINE, lane, [&](int i) {
        const Words bits = fours >> 8 * i, size = bits & 127u;
        // Exponents begin at 2**-6, and below it numbers have none.
        const Row normal = (Row)((size << 20) + (120u << 23)), small = (Row)((size << 20) + (121u << 23)) - 0.015625f;
        const Row number = size < 8 ? small : normal;
        return (Row)((Words)number ^ (bits & 128u) << 24) * scale;
      });
    }
  }
};

// 16 outputs: where their blocks begin, and what they are.
struct Strip {
  int64_t offset, kind;
};
constexpr int64_t BF16 = 30;  // tiles as they are; numbers of kinds below 1000 are ggml's

// Inputs from..from + depth of a strip; both are multiples of a block's inputs.
template <class Format>
inline void unpack_as(const uint8_t* strip, int64_t from, int64_t depth, bf16* lines) {
  constexpr int64_t BYTES = Format::BYTES * ROWS, AHEAD_BYTES = 4096;
  strip += from / Format::INPUTS * BYTES;
  for (int64_t i = 0; i < depth; i += Format::INPUTS, strip += BYTES, lines += Format::INPUTS * ROWS) {
    for (int64_t line = 0; line < BYTES; line += 64) __builtin_prefetch(strip + AHEAD_BYTES + line, 0, 3);
    for (int lane = 0; lane < ROWS; lane += LANES) Format::unpack(strip, lane, lines);
  }
}

inline void unpack(int64_t kind, const uint8_t* strip, int64_t from, int64_t depth, bf16* lines) {
  switch (kind) {
    case 2: return unpack_as<Plain<false, false>>(strip, from, depth, lines);
    case 3: return unpack_as<Plain<true, false>>(strip, from, depth, lines);
    case 6: return unpack_as<Plain<false, true>>(strip, from, depth, lines);
    case 7: return unpack_as<Plain<true, true>>(strip, from, depth, lines);
    case 8: return unpack_as<Bytes>(strip, from, depth, lines);
    case 12: return unpack_as<Parts<false>>(strip, from, depth, lines);
    case 13: return unpack_as<Parts<true>>(strip, from, depth, lines);
    case 14: return unpack_as<Sixes>(strip, from, depth, lines);
    case 39: return unpack_as<Floats>(strip, from, depth, lines);
    case 1000: return unpack_as<Grouped<true>>(strip, from, depth, lines);
    case 1001: return unpack_as<Grouped<false>>(strip, from, depth, lines);
    case 1002: return unpack_as<Eights>(strip, from, depth, lines);
  }
}
