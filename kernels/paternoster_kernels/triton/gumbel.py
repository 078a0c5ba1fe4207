"""Gumbel noise that is a function of (seed, position, token) alone."""

import triton
import triton.language as tl


@triton.jit
def _splitmix64(x):
    x = x + 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def row_key(seed, position):
    """64 random bits of a row, from its int64 seed and position."""
    return _splitmix64(_splitmix64(seed.to(tl.uint64)) ^ position.to(tl.uint64))


@triton.jit
def gumbel_noise(key, token):
    """Standard Gumbel noise, float32, for int32 ``token [BLOCK]`` under a row's ``key``."""
    x = token.to(tl.uint32) * 0x9E3779B1 + key.to(tl.uint32)
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= (key >> 32).to(tl.uint32)
    x ^= x >> 15
    x *= 0x846CA68B
    x ^= x >> 16
    uniform = ((x & 0x7FFFFFFF).to(tl.int32).to(tl.float32) + 0.5) * 4.656612873077393e-10
    uniform = tl.minimum(uniform, 0.99999994039535522)
    # -log(1 - u): a series where 1 - u would lose the digits of u.
    u = uniform
    series = u * (1.0 + u * (0.5 + u * (0.33333334 + u * (0.25 + u * (0.2 + u * 0.16666667)))))
    exponential = tl.where(u < 0.0625, series, -tl.log(1.0 - u))
    return -tl.log(exponential)
