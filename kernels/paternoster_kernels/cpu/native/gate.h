// The gate of an MLP.
#pragma once
#include "vectors.h"

inline Row silu(Row gate) {
  const Row exponential = exp2(_mm512_min_ps(_mm512_mul_ps(gate, _mm512_set1_ps(-LOG2E)), _mm512_set1_ps(126.0f)));
  return _mm512_div_ps(gate, _mm512_add_ps(_mm512_set1_ps(1.0f), exponential));
}
