"""What a model's file says of itself, field by field: the type and the bounds are checked before it is used."""

import json
import math
from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, cast

from paternoster_engine.model.errors import ModelError, UnsupportedModelError

_SHOWN = 60
_REQUIRED: Any = object()


class Fields:
    """Fields by name; each reader raises :class:`UnsupportedModelError` naming the field, its value and what may be.

    ``default`` is for a field that is absent or null. ``prefix`` is put before every name.
    """

    def __init__(self, values: Mapping[str, Any], file: str, prefix: str = "") -> None:
        self._values = values
        self._file = file
        self._prefix = prefix

    def with_defaults(self, values: Mapping[str, Any]) -> "Fields":
        """Fields with ``values`` for those that are absent."""
        return Fields(ChainMap(cast("MutableMapping[str, Any]", self._values), dict(values)), self._file, self._prefix)

    def replace_values(self, values: Mapping[str, Any]) -> "Fields":
        """Fields with other ``values`` of some."""
        return Fields(ChainMap(dict(values), cast("MutableMapping[str, Any]", self._values)), self._file, self._prefix)

    def pass_over(self, *keys: str) -> None:
        """Count ``keys`` as read: by another field they have no effect."""
        for key in keys:
            self._values.get(self._prefix + key)

    def read_integer(self, key: str, most: int, *, least: int = 1, default: Any = _REQUIRED) -> int:
        """A whole number from ``least`` to ``most``."""
        value = self._get(key, default)
        if value is default:
            return value  # type: ignore[no-any-return]
        if type(value) is not int or not least <= value <= most:
            raise self.describe_refusal(key, value, f"a whole number from {least} to {most}")
        return value

    def read_positive(self, key: str, *, default: Any = _REQUIRED) -> float:
        """A finite number above 0."""
        value = self._get(key, default)
        if value is default:
            return value  # type: ignore[no-any-return]
        try:
            number = float(value) if type(value) in (int, float) else math.nan
        except OverflowError:
            number = math.inf
        if not 0 < number < math.inf:
            raise self.describe_refusal(key, value, "a finite number above 0")
        return number

    def read_number(self, key: str, least: float, most: float, *, default: Any = _REQUIRED) -> float:
        """A number from ``least`` to ``most``."""
        value = self._get(key, default)
        if value is default:
            return value  # type: ignore[no-any-return]
        if type(value) not in (int, float) or not least <= value <= most:
            raise self.describe_refusal(key, value, f"a number from {least:g} to {most:g}")
        return float(value)

    def read_flag(self, key: str, *, default: bool = False) -> bool:
        """True or false."""
        return self._read_field(key, bool, "true or false", default=default)  # type: ignore[no-any-return]

    def read_text(self, key: str, *, default: Any = _REQUIRED) -> str:
        return self._read_field(key, str, "a text", default)  # type: ignore[no-any-return]

    def read_texts(self, key: str, *, default: Any = _REQUIRED) -> list[str]:
        """A list of texts."""
        value = self._read_field(key, list, "a list of texts", default)
        if value is not default and not all(isinstance(item, str) for item in value):
            raise self.describe_refusal(key, value, "a list of texts")
        return value  # type: ignore[no-any-return]

    def read_integers(self, key: str, most: int, *, default: Any = _REQUIRED) -> list[int]:
        """A list of whole numbers from 0 to ``most``."""
        value = self._read_field(key, list, "a list of whole numbers", default)
        if value is not default and not all(type(item) is int and 0 <= item <= most for item in value):
            raise self.describe_refusal(key, value, f"a list of whole numbers from 0 to {most}")
        return value  # type: ignore[no-any-return]

    def read_positives(self, key: str) -> list[float]:
        """A list of finite numbers above 0."""
        value = self._read_field(key, list, "a list of numbers", _REQUIRED)
        if not all(type(item) in (int, float) and 0 < item < math.inf for item in value):
            raise self.describe_refusal(key, value, "a list of finite numbers above 0")
        return [float(item) for item in value]

    def read_numbers(self, key: str) -> list[float]:
        """A list of finite numbers, which of a GGUF file's fields is an array."""
        value = self._get(key, _REQUIRED)
        value = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(value, list) or not all(type(i) in (int, float) and math.isfinite(i) for i in value):
            raise self.describe_refusal(key, value, "a list of finite numbers")
        return value

    def read_mapping(self, key: str) -> "Mapping[str, Any]":
        """Absent is empty."""
        return self._read_field(key, Mapping, "an object", default={})  # type: ignore[no-any-return]

    def read_mappings(self, key: str) -> "list[Mapping[str, Any]] | None":
        """A list of objects; None where the field is anything else."""
        value = self._values.get(self._prefix + key)
        is_list = isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
        return value if is_list else None

    def describe_refusal(self, key: str, value: Any, allowed: str) -> UnsupportedModelError:
        """The error to raise."""
        return UnsupportedModelError(f"{self._file}: {self._prefix}{key} is {shorten_value(value)}: must be {allowed}")

    def _read_field(self, key: str, kind: type, allowed: str, default: Any) -> Any:
        value = self._get(key, default)
        if value is not default and not isinstance(value, kind):
            raise self.describe_refusal(key, value, allowed)
        return value

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(self._prefix + key)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise UnsupportedModelError(f"{self._file} has no field {self._prefix + key!r}")
        return default


def shorten_value(value: Any) -> str:
    """``value`` for a message of one line, shortened."""
    if isinstance(value, Sequence) and len(value) > _SHOWN:
        text = repr(value[:_SHOWN])
    elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 512:
        return f"a number of {value.bit_length()} bits"
    else:
        text = repr(value)
    return " ".join(text.split()) if len(text) <= _SHOWN else " ".join(text[:_SHOWN].split()) + "..."


def parse_object(text: str, where: str) -> dict[str, Any]:
    """``text`` as a JSON object; raises :class:`ModelError` saying ``where`` it is none."""
    document = _parse_json(text, where)
    if not isinstance(document, dict):
        raise ModelError(f"{where} is {shorten_value(document)}: must be a JSON object")
    return document


def parse_list(text: str, where: str) -> list[dict[str, Any]]:
    """``text`` as a list of JSON objects; raises :class:`ModelError` saying ``where`` it is none."""
    document = _parse_json(text, where)
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise ModelError(f"{where} is {shorten_value(document)}: must be a list of JSON objects")
    return document


def _parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ModelError(f"{where} is nested too deep") from error
    except ValueError as error:
        raise ModelError(f"{where} is not JSON: {error}") from error
