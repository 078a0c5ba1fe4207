// The gate of an MLP.
#pragma once
#include "vectors.h"

inline Row silu(Row gate) { return gate / (1.0f + exp2(min(gate * -LOG2E, all(126.0f)))); }
