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

// `bits` of each word from `shift` on, left where they are: number(shift) of these is times factor(shift). A shift less.
constexpr float factor(int bits, int shift) { return shift + bits < 32 ? 1.0f / float(1u << shift) : 1.0f; }
inline Row number(Words words, int bits, int shift) {
  const uint32_t mask = (1u << bits) - 1u;
  return to_floats(shift + bits < 32 ? words & mask << shift : words >> shift);
}

// A line of the even and the odd input of some outputs, rounded to the nearest bfloat16 numbers, the even one of two.
inline Words to_line(Row even, Row odd) {
#if defined(__AVX512BF16__)
  alignas(64) static const uint16_t PLACES[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                  8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
  return (Words)_mm512_permutexvar_epi16(load<__m512i>(PLACES), both);
#else
  const Words low = (Words)even, high = (Words)odd;
  const Words left = (low + 0x7fffu + (low >> 16 & 1u)) >> 16, right = high + 0x7fffu + (high >> 16 & 1u);
  return left | (right & 0xffff0000u);
#endif
}

// The two lines of four inputs, weight(i) each.
template <class Take, class Weight>
inline void take_four(Take& take, const Weight& weight) {
  take(to_line(weight(0), weight(1)));
  take(to_line(weight(2), weight(3)));
}

// Formats: take() is given the lines of a block in the order of its inputs, for the outputs from `lane` on.

// Q4_0, Q4_1, Q5_0, Q5_1: a scale, the least number or none, the fifth bits or none, and low bits, where a byte has
// input i and input i + 16.
template <bool LEAST, bool FIFTH>
struct Plain {
  static constexpr int64_t INPUTS = 32, BYTES = 18 + 2 * LEAST + 4 * FIFTH;

  template <class Take>
  static void unpack(const uint8_t* block, int lane, Take& take) {
    const Row scale = load_halves(block, lane);
    Row least = scale * (FIFTH ? -16.0f : -8.0f);
    if constexpr (LEAST) least = load_halves(block + 2 * ROWS, lane);
    const uint8_t *fifths = block + (LEAST ? 4 : 2) * ROWS, *bytes = fifths + (FIFTH ? 4 : 0) * ROWS;
    Words fifth = {};
    if constexpr (FIFTH) fifth = load_words(fifths, 0, lane);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++)
#pragma GCC unroll 4
      for (int item = 0; item < 4; item++) {
        const Words fours = load_words(bytes, item, lane);
        take_four(take, [&](int i) {
          const int shift = 8 * i + 4 * half;
          if constexpr (!FIFTH) return fma(number(fours, 4, shift), scale * factor(4, shift), least);
          const Words low = fours >> shift & 15u, high = (fifth >> (4 * item + 16 * half + i) & 1u) << 4;
          return fma(to_floats(low | high), scale, least);
        });
      }
  }
};

// Q8_0: a scale and numbers with a sign.
struct Bytes {
  static constexpr int64_t INPUTS = 32, BYTES = 34;

  template <class Take>
  static void unpack(const uint8_t* block, int lane, Take& take) {
    const Row scale = load_halves(block, lane), least = scale * -128.0f;
#pragma GCC unroll 8
    for (int item = 0; item < 8; item++) {
      // Without a sign, they are more by 128.
      const Words fours = load_words(block + 2 * ROWS, item, lane) ^ 0x80808080u;
      take_four(take, [&](int i) { return fma(number(fours, 8, 8 * i), scale * factor(8, 8 * i), least); });
    }
  }
};

// Q4_K, Q5_K: 8 parts of 32 inputs, with a scale and a least number of six bits each beside those of the block; bytes
// have an input of one part and one of the next.
template <bool FIFTH>
struct Parts {
  static constexpr int64_t INPUTS = 256, BYTES = 144 + 32 * FIFTH;

  template <class Take>
  static void unpack(const uint8_t* block, int lane, Take& take) {
    const Row scale = load_halves(block, lane), least = load_halves(block + 2 * ROWS, lane);
    const uint8_t *sixes = block + 4 * ROWS, *fifths = sixes + 12 * ROWS, *bytes = fifths + (FIFTH ? 32 : 0) * ROWS;
    const Words low = load_words(sixes, 0, lane), high = load_words(sixes, 1, lane), rest = load_words(sixes, 2, lane);
    for (int pair = 0; pair < 4; pair++) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++) {
        const int part = 2 * pair + half, at = part % 4 * 8;
        // Of the last four parts two bits are above the six of the first four.
        const Words a = part < 4 ? low >> at & 63u : (rest >> at & 15u) | (low >> (at + 6) & 3u) << 4;
        const Words b = part < 4 ? high >> at & 63u : (rest >> (at + 4) & 15u) | (high >> (at + 6) & 3u) << 4;
        const Row own = scale * to_floats(a), less = -(least * to_floats(b));
        const Row scales[4] = {own * factor(4, 4 * half), own * factor(4, 8 + 4 * half), own * factor(4, 16 + 4 * half),
                               own * factor(4, 24 + 4 * half)};
        for (int item = 0; item < 8; item++) {
          const Words fours = load_words(bytes, 8 * pair + item, lane);
          Words fifth = {};
          if constexpr (FIFTH) fifth = load_words(fifths, item, lane) >> part;
          take_four(take, [&](int i) {
            const int shift = 8 * i + 4 * half;
            if constexpr (!FIFTH) return fma(number(fours, 4, shift), scales[i], less);
            return fma(to_floats((fours >> shift & 15u) | (fifth >> 8 * i & 1u) << 4), own, less);
          });
        }
      }
    }
  }
};

// Q6_K: low four bits, high two bits, scales of 16 inputs each in 8 bits, and one of the block.
struct Sixes {
  static constexpr int64_t INPUTS = 256, BYTES = 210;

  template <class Take>
  static void unpack(const uint8_t* block, int lane, Take& take) {
    const uint8_t *lows = block, *highs = lows + 128 * ROWS, *eights = highs + 64 * ROWS;
    const Row scale = load_halves(eights + 16 * ROWS, lane);
    for (int half = 0; half < 2; half++)
#pragma GCC unroll 4
      for (int part = 0; part < 4; part++)
        for (int run = 0; run < 2; run++) {
          const int place = 8 * half + 2 * part + run;
          const Words bytes = load_words(eights, place / 4, lane) << (24 - place % 4 * 8);
          const Row own = scale * to_floats((Words)((Ints)bytes >> 24)), less = own * -32.0f;
          for (int item = 4 * run; item < 4 * run + 4; item++) {
            const Words low = load_words(lows, 16 * half + 8 * (part % 2) + item, lane) >> part / 2 * 4 & 0x0f0f0f0fu;
            const Words high = load_words(highs, 8 * half + item, lane) >> 2 * part & 0x03030303u;
            const Words sixes = low | high << 4;
            take_four(take, [&](int i) { return fma(number(sixes, 8, 8 * i), own * factor(8, 8 * i), less); });
          }
        }
  }
};

// MXFP4: an exponent, and floats of four bits, where a byte has input i and input i + 16.
struct Floats {
  static constexpr int64_t INPUTS = 32, BYTES = 17;

  template <class Take>
  static void unpack(const uint8_t* block, int lane, Take& take) {
    // Of numbers that are twice as large; the least two have no power of two that is a normal float.
    const Words exponent = load_octets(block, lane);
    const Row scale = (Row)(exponent < 2 ? 0x200000u << exponent : (exponent - 1u) << 23);
    for (int half = 0; half < 2; half++)
#pragma GCC unroll 4
      for (int item = 0; item < 4; item++) {
        const Words fours = load_words(block + ROWS, item, lane) >> 4 * half;
        take_four(take, [&](int i) {
          const Words bits = fours >> 8 * i, size = bits & 7u;
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

  template <class Take>
  static void unpack(const uint8_t* block, int lane, Take& take) {
    const Row scale = HALF ? load_halves(block, lane) : load_bf16((const bf16*)block + lane);
    const Row least = -(to_floats(load_octets(block + 2 * ROWS, lane)) * scale);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++)
#pragma GCC unroll 4
      for (int item = 0; item < 4; item++) {
        const Words fours = load_words(block + 3 * ROWS, item, lane);
        take_four(take, [&](int i) {
          const int shift = 8 * i + 4 * half;
          return fma(number(fours, 4, shift), scale * factor(4, shift), least);
        });
      }
  }
};

// Floats of eight bits, e4m3, and a scale in float32.
struct Eights {
  static constexpr int64_t INPUTS = 32, BYTES = 36;

  template <class Take>
  static void unpack(const uint8_t* block, int lane, Take& take) {
    const Row scale = load_row((const float*)block + lane);
    for (int item = 0; item < 8; item++) {
      const Words fours = load_words(block + 4 * ROWS, item, lane);
      take_four(take, [&](int i) {
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

// Calls run with the format of a kind, as a value.
template <class Run>
inline void with_format(int64_t kind, const Run& run) {
  switch (kind) {
    case 2: return run(Plain<false, false>());
    case 3: return run(Plain<true, false>());
    case 6: return run(Plain<false, true>());
    case 7: return run(Plain<true, true>());
    case 8: return run(Bytes());
    case 12: return run(Parts<false>());
    case 13: return run(Parts<true>());
    case 14: return run(Sixes());
    case 39: return run(Floats());
    case 1000: return run(Grouped<true>());
    case 1001: return run(Grouped<false>());
    case 1002: return run(Eights());
  }
}

// The block of a strip that input `from` begins; some of those behind it are fetched.
template <class Format>
inline const uint8_t* block_at(const uint8_t* strip, int64_t from) {
  constexpr int64_t BYTES = Format::BYTES * ROWS, AHEAD_BYTES = 4096;
  const uint8_t* block = strip + from / Format::INPUTS * BYTES;
  for (int64_t line = 0; line < BYTES; line += 64) __builtin_prefetch(block + AHEAD_BYTES + line, 0, 3);
  return block;
}

// The lines of inputs from..from + depth of a strip, both multiples of a block's inputs.
inline void unpack(int64_t kind, const uint8_t* strip, int64_t from, int64_t depth, bf16* lines) {
  with_format(kind, [&](auto format) {
    using Format = decltype(format);
    for (const int64_t end = from + depth; from < end; from += Format::INPUTS) {
      const uint8_t* block = block_at<Format>(strip, from);
      for (int lane = 0; lane < ROWS; lane += LANES) {
        bf16* to = lines + 2 * lane;
        auto take = [&](Words line) {
          store(to, line);
          to += LINE;
        };
        Format::unpack(block, lane, take);
      }
      lines += Format::INPUTS * ROWS;
    }
  });
}
