import itertools

import pytest

from paternoster_load.client import BenchClient, ServerError, drive_load
from paternoster_load.results import BenchRequest, RequestEnd


async def test_a_completed_request_is_measured(server):
    async with BenchClient(server.url, "tiny", sampling={"temperature": 0}) as client:
        result = await client.send(BenchRequest(0, [7, 8, 9], 5))
    assert result.outcome is RequestEnd.COMPLETED
    assert (result.prompt_tokens, result.output_tokens, len(result.itls)) == (3, 5, 4)
    assert 0 < result.ttft < result.latency
    assert result.ttft + sum(result.itls) <= result.latency
    assert result.tpot == pytest.approx((result.latency - result.ttft) / 4)
    assert server.bodies == [
        {
            "model": "tiny",
            "prompt": [7, 8, 9],
            "max_tokens": 5,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
        }
    ]


@pytest.mark.parametrize(
    ("behaviour", "outcome", "error", "status"),
    [
        ("REFUSE", RequestEnd.REFUSED, "queue is full", 503),
        ("ERROR_EVENT", RequestEnd.REFUSED, "the engine failed", 200),
        ("CUT", RequestEnd.LOST, "", 200),
        ("NO_REASON", RequestEnd.LOST, "without a finish reason", 200),
        ("UNEXPLAINED", RequestEnd.LOST, "HTTP 502 without an explanation", 502),
        ("HANG", RequestEnd.LOST, "no end within 0.3 s", None),
    ],
)
async def test_what_counts_as_lost_and_what_as_refused(server, behaviour, outcome, error, status):
    server.behaviour = getattr(server, behaviour)
    async with BenchClient(server.url, "tiny", timeout=0.3) as client:
        result = await client.send(BenchRequest(0, [1], 3))
    assert result.outcome is outcome
    assert error in result.error
    assert result.error
    assert result.status == status


async def test_no_server_is_a_lost_request_and_a_clear_error(server):
    await server.runner.cleanup()
    async with BenchClient(server.url, "tiny") as client:
        result = await client.send(BenchRequest(0, [1], 3))
        assert result.outcome is RequestEnd.LOST
        with pytest.raises(ServerError, match="/v1/models: "):
            await client.list_models()


@pytest.mark.parametrize(("keep_alive", "connections"), [(True, 1), (False, 3)])
async def test_connections_are_kept_or_not(server, keep_alive, connections):
    async with BenchClient(server.url, "tiny", keep_alive=keep_alive) as client:
        for index in range(3):
            assert (await client.send(BenchRequest(index, [1], 3))).outcome is RequestEnd.COMPLETED
    assert len(server.clients) == connections


async def test_chat_streams_pieces_and_raises_the_servers_reason(server):
    async with BenchClient(server.url, "tiny") as client:
        assert [piece async for piece in client.stream_chat("Hi", max_tokens=8)] == ["Hello", " there"]
        assert server.bodies[0]["max_tokens"] == 8
        server.behaviour = server.REFUSE
        with pytest.raises(ServerError, match="queue is full"):
            [piece async for piece in client.stream_chat("Hi")]


async def test_drive_sends_all_in_order_within_the_concurrency(server):
    seen = []
    async with BenchClient(server.url, "tiny") as client:
        requests = [BenchRequest(i, [1] * (i + 1), 3) for i in range(20)]
        results = await drive_load(client, requests, max_concurrency=4, on_result=seen.append)
    assert [result.index for result in results] == list(range(20))
    assert sorted(result.index for result in seen) == list(range(20))
    assert server.most_in_flight == 4


async def test_drive_waits_for_arrivals_and_stops_at_the_duration(server):
    async with BenchClient(server.url, "tiny") as client:
        requests = (BenchRequest(i, [1], 1, arrival_s=i * 0.05) for i in range(1_000_000))
        results = await drive_load(client, requests, duration=0.22)
    assert [result.index for result in results] == list(range(len(results)))
    assert 1 <= len(results) <= 5
    gaps = [b.start - a.start for a, b in itertools.pairwise(results)]
    assert all(gap > 0 for gap in gaps)
