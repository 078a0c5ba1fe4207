"""Requests that no HTTP library sends: bodies that never end, and bodies in chunks of one byte."""

import asyncio

BODY_BYTES = 4 * 2**20
"""The most that a gateway accepts by default."""
CHUNKS = 20_000
HOLD_SECONDS = 45.0


async def hold_body(url: str, path: str, key: str) -> None:
    """All of the largest body but its end, for as long as the gateway waits for the next 64 KiB."""
    reader, writer = await _connect(url)
    try:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % BODY_BYTES)
        writer.write(b" " * (BODY_BYTES - 1))
        await writer.drain()
        async with asyncio.timeout(HOLD_SECONDS):
            await reader.read(100)
    finally:
        writer.close()


async def send_single_bytes(url: str, path: str) -> None:
    """A body in chunks of one byte, without a key."""
    reader, writer = await _connect(url)
    try:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        writer.write(head.encode())
        for _ in range(CHUNKS // 1000):
            writer.write(b"1\r\n \r\n" * 1000)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await reader.read(100)
    finally:
        writer.close()


async def _connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))
