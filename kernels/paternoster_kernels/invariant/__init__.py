"""Operations for CPUs in which a row's numbers do not depend on what other rows there are, or how many.

A library picks its order of summation by the shapes that it is given. Here shapes are the same for every batch: rows go
through in tiles of a fixed size, keys in chunks of one. The price is padding. On CUDA the Triton kernels do without.
"""
