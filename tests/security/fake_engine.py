"""An engine to stop and kill: run as a program it prints its port, then streams a number every 50 ms to who asks.

python tests/security/fake_engine.py NAME
"""

import asyncio
import sys

from aiohttp import web

COUNT = 20


async def health(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def generate(request: web.Request) -> web.StreamResponse:
    name = request.app["name"]
    if not (await request.json()).get("stream"):
        await asyncio.sleep(0.2)
        return web.json_response({"from": name})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(COUNT):
        await response.write(b'data: {"from": "%s", "number": %d}\n\n' % (name.encode(), number))
        await asyncio.sleep(0.05)
    await response.write(b"data: [DONE]\n\n")
    return response


async def main(name: str) -> None:
    app = web.Application(handler_args={"access_log": None})
    app["name"] = name
    app.router.add_get("/health", health)
    app.router.add_post("/{path:.*}", generate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
