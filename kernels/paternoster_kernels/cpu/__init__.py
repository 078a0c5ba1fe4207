"""Operations in C++ for CPUs, in bfloat16; each computes what its namesake in ``reference`` computes.

Whatever they do not take (float32, odd sizes) goes to the reference, and so does everything on a CPU without AVX2 or
NEON, or a machine that has neither a library made for it nor a C++ compiler.
"""
