// The gates of MLPs.
#pragma once
#include "vectors.h"

// IN_TURNS: both halves, in strips of 16 in turns, for who applies a gate later.
enum Gate : int { NO_GATE = 0, SILU = 1, GELU = 2, IN_TURNS = 3 };

// x times the logistic function of `logit`.
inline Row open_by(Row logit, Row x) { return x / (1.0f + exp2(min(logit * -LOG2E, all(126.0f)))); }

inline Row silu(Row gate) { return open_by(gate, gate); }

// In its tanh form: 1 + tanh(z) is twice the logistic function of 2 * z, and z is sqrt(2 / pi) * (x + 0.044715 * x^3).
inline Row gelu(Row gate) { return open_by(gate * (1.5957691216f + 0.0713548163f * gate * gate), gate); }

inline Row activate(int gate, Row x) { return gate == GELU ? gelu(x) : silu(x); }
