"""What is wrong with the engine's flags, as one line each."""

from pydantic import ValidationError


def flag_errors(error: ValidationError) -> list[str]:
    """The flag, what it was given, what it allows; for an error of several flags, what the model says."""
    return [_line(detail["loc"], detail["input"], detail["msg"]) for detail in error.errors()]


def _line(location: tuple[int | str, ...], value: object, message: str) -> str:
    message = message.removeprefix("Value error, ")
    if not location:
        return message
    flag = str(location[0]).replace("_", "-")
    return f"--{flag} is {value!r}: {message[:1].lower()}{message[1:]}"
