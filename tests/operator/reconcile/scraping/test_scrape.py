"""What the operator keeps of an engine's answer: it scrapes thousands of engines every few seconds."""

from aiohttp import web

from paternoster_contract.default_parameters import DefaultParameters
from paternoster_contract.fetch_status import FetchStatus
from paternoster_contract.stats import BatchLaneStats, EngineState, EngineStats, LoraAdapterStats, Unreported
from paternoster_e2e.fakes.engine import FakeEngine, listening
from paternoster_operator.scrape import Scraper

REPORTED = EngineStats.model_construct(
    **dict.fromkeys(EngineStats.model_fields, 1)
    | {"instance": "a", "model": "m", "state": EngineState.READY, "step_sums": (1.0,) * 21, "start_seconds": {}}
    | {"engine_version": "1"}
    | {"unreported": (Unreported.KV_BLOCKS,)}
    | {"default_parameters": DefaultParameters(temperature=0.7, top_k=20)}
    | {"adapters": (LoraAdapterStats(name="sql", ready=True),)}
    | {"batch": BatchLaneStats(**dict.fromkeys(BatchLaneStats.model_fields, 1))}
)  # fmt: skip


async def test_answers_are_whole_and_carry_no_list_of_their_fields() -> None:
    async def stats(_: web.Request) -> web.Response:
        return web.json_response(text=REPORTED.model_dump_json())

    polls: list[tuple[str, bool]] = []

    def observe(target: str, succeeded: bool, seconds: float) -> None:
        assert seconds >= 0
        polls.append((target, succeeded))

    scraper = Scraper(timeout_seconds=2, gateway_url="http://127.0.0.1:1", observe=observe)
    async with listening(stats) as url:
        assert await scraper.held_by_fleet() == {}
        answers, refused, _ = await scraper.read_engines({"ride-0": url, "ride-1": url, "gone": "http://127.0.0.1:1"})
        await scraper.close()
    assert answers == {"ride-0": REPORTED, "ride-1": REPORTED}
    assert refused == {}
    assert sorted(polls) == [("engine", False), ("engine", True), ("engine", True), ("gateway", False)]
    assert {len(answer.model_fields_set) for answer in answers.values()} == {0}
    assert answers["ride-0"].default_parameters is answers["ride-1"].default_parameters, "as each sample is kept"
    assert answers["ride-0"].adapters is answers["ride-1"].adapters


async def test_pods_that_fetch_tell_how_far_they_are() -> None:
    fetch_status = FetchStatus(state="downloading", done=1, total=2)

    texts = {"good": fetch_status.to_json_line(), "bad": "boom", "long": " " * 2**17}
    engine = FakeEngine(answers={f"/{name}/stats": text.encode() for name, text in texts.items()})
    scraper = Scraper(timeout_seconds=2, gateway_url=None)
    async with engine.listening():
        downloads = await scraper.read_downloads(
            {**{name: f"{engine.url}/{name}" for name in (*texts, "none")}, "gone": "http://127.0.0.1:1"}
        )
        await scraper.close()
    assert downloads == {"good": fetch_status}
