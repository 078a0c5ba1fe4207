"""Messages between the engine and a limited process: JSON after its length in bytes."""

import json
from typing import IO, Any

_LENGTH = 8


def write_frame(stream: IO[bytes], value: Any) -> None:
    data = json.dumps(value).encode()
    stream.write(len(data).to_bytes(_LENGTH, "little") + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:
    """Read one message; raises ``EOFError`` when the other process has ended."""
    data = _read_exactly(stream, int.from_bytes(_read_exactly(stream, _LENGTH), "little"))
    return json.loads(data)


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
