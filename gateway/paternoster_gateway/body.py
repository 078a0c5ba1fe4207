"""What the gateway must know of a body: the model that it names."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from paternoster_gateway.errors import GatewayError, bad_request


class _Named(BaseModel):
    """The rest is read as JSON and then dropped, without an object in Python for each value."""

    model_config = ConfigDict(strict=True)

    model: str | None = None


def named_model(body: bytes | bytearray) -> str | None:
    """The value of ``model`` in the JSON object ``body``, UTF-8; None where it is null, empty or left out.

    Raises :class:`GatewayError` (400) also for what JSON's grammar allows and no engine can read: half a surrogate
    pair, numbers of thousands of digits, and arrays in arrays beyond 200.
    """
    try:
        return _Named.model_validate_json(bytes(body)).model or None
    except ValidationError as error:
        raise _told(error.errors(include_url=False)[0]) from None


def _told(error: Any) -> GatewayError:
    if error["type"] == "json_invalid":
        return bad_request(f"The body is not JSON: {error['ctx']['error']}")
    return bad_request("The body must be an object, and its `model` the name of a served model.", "model")
