"""What servers under test answered: the bodies of all that official clients have types for, as they went out."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
PREFIX = "/v1/"


@dataclass
class Recorded:
    """One answer."""

    method: str
    path: str
    status: int = 0
    content_type: str = ""
    text: str = ""
    ended: bool = False
    """False where the client left before."""


def recording(
    call: Callable[..., Awaitable[None]], write_answer: Callable[[Recorded], None]
) -> Callable[..., Awaitable[None]]:
    """``FastAPI.__call__``, and ``write_answer`` is called with each answer."""

    async def called(app: FastAPI, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await call(app, scope, receive, send)
            return
        answer, body = Recorded(scope["method"], scope["path"]), bytearray()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                headers = {name.lower(): value for name, value in message["headers"]}
                answer.content_type = headers.get(b"content-type", b"").decode()
            elif message["type"] == "http.response.body":
                body.extend(message.get("body", b""))
                answer.ended = not message.get("more_body", False)
            await send(message)

        try:
            await call(app, scope, receive, sending)
        finally:
            answer.text = body.decode()
            write_answer(answer)

    return called


def read(file: Path) -> list[Recorded]:
    """What :func:`main` wrote; nothing where the process got no request."""
    return [Recorded(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


def main(file: str) -> None:
    """The command ``paternoster`` with the arguments of this process, which appends each answer to ``file``."""
    from paternoster_contract.cli.command import main as command

    def write_answer(answer: Recorded) -> None:
        with open(file, "a") as lines:
            lines.write(json.dumps(asdict(answer)) + "\n")

    FastAPI.__call__ = recording(FastAPI.__call__, write_answer)  # type: ignore[method-assign]
    raise SystemExit(command())


if __name__ == "__main__":
    import sys

    main(sys.argv.pop(1))
