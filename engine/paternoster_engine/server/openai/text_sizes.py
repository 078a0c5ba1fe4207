"""How long texts of a request may be, checked before anything reads them."""

from collections.abc import Sequence

from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.state import ServedModel


def text_size(served: ServedModel, field: str, texts: Sequence[str], *, cut: bool = False) -> int:
    """Bytes of ``texts`` together; raises :class:`InvalidValue` for what the context or the engine cannot hold.

    ``cut``: whether the tokens are cut, so that each text may be longer than the context.
    """
    sizes = [len(text.encode()) for text in texts]
    if max(sizes) > served.longest_text and not cut:
        raise InvalidValue(
            field,
            f"This model's maximum context length is {served.max_model_len} tokens, which are at most "
            f"{served.longest_text} bytes of text. However, {field} has {max(sizes)} bytes.",
        )
    if sum(sizes) > served.text_work.most:
        raise InvalidValue(
            field,
            f"{field}: has {sum(sizes)} bytes in all its texts, of at most {served.text_work.most} in one request",
        )
    return sum(sizes)
