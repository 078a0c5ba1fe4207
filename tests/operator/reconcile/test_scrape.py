"""What the operator keeps of an engine's answer: thousands of engines are asked every few seconds."""

from aiohttp import web

from paternoster_contract.stats import EngineState, EngineStats
from paternoster_operator.scrape import Scraper

TOLD = EngineStats.model_construct(
    **dict.fromkeys(EngineStats.model_fields, 1)
    | {"instance": "a", "model": "m", "state": EngineState.READY, "step_sums": (1.0,) * 21}
)  # fmt: skip


async def test_answers_are_whole_and_carry_no_list_of_their_fields() -> None:
    async def stats(_: web.Request) -> web.Response:
        return web.json_response(text=TOLD.model_dump_json())

    app = web.Application()
    app.router.add_get("/stats", stats)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    scraper = Scraper(timeout_seconds=2, gateway_url=None)
    try:
        answers, refused = await scraper.engines({"ride-0": url, "ride-1": url, "gone": "http://127.0.0.1:1"})
    finally:
        await scraper.close()
        await runner.cleanup()
    assert answers == {"ride-0": TOLD, "ride-1": TOLD}
    assert refused == {}
    assert {len(answer.model_fields_set) for answer in answers.values()} == {0}
