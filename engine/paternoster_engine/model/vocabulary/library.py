"""What the `tokenizers` library says of files that it cannot take."""

from collections.abc import Iterator
from contextlib import contextmanager

from paternoster_engine.model.errors import ModelError, UnsupportedModelError


@contextmanager
def refused_by_library(what: str) -> Iterator[None]:
    """It raises plain exceptions; its panics are no ``Exception`` at all."""
    try:
        yield
    except ModelError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())
        raise UnsupportedModelError(f"{what} is none that can be read: {reason[:200]}") from error
