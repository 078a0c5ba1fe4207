"""Memory that was freed and that the C library keeps between what is still in use."""

import ctypes


def trim_heap() -> None:
    """Give its pages back to the system, where the C library can (glibc): loading leaves holes as large as a matrix."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
