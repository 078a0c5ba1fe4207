"""Answers of a picker to streams: choices, refusals, what it counts, and how streams end."""

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from tests.gateway.picker.conftest import ADDRESSES, BODY, PickerUnderTest, StartPicker, route_to, until
from tests.gateway.picker.envoy_messages import (
    HEADERS,
    answer_body,
    answer_head,
    headers_set,
    request_body,
    request_head,
)

from paternoster_contract.access.identity import HEADER, Identity
from paternoster_contract.access.keys import GATEWAY_TO_ENGINE, derive_key, digest_key
from paternoster_gateway.picker.limits import PickerLimits

KEY = "sk-" + "a" * 32


def refusal(reply: ProcessingResponse) -> tuple[int, str, dict[str, str], dict[str, Any]]:
    """Status, reason, headers and body of what Envoy is to answer by itself."""
    assert reply.WhichOneof("response") == "immediate_response", reply
    answer = reply.immediate_response
    headers = {each.header.key: each.header.raw_value.decode() for each in answer.headers.set_headers}
    return answer.status.code, headers.get("x-llm-d-request-dropped-reason", ""), headers, json.loads(answer.body)


async def test_a_request_counts_where_it_is_until_its_stream_ends(picker: PickerUnderTest) -> None:
    streams = [picker.open_stream() for _ in range(3)]
    chosen = [await stream.choose() for stream in streams]
    assert {each[0] for each in chosen} == set(ADDRESSES), "the least loaded first"
    assert all(set(each) == set(ADDRESSES) for each in chosen), "the others in its place"
    assert picker.in_flight == {f"http://{each}": 1 for each in ADDRESSES}
    await streams[0].send(answer_head(served=chosen[0][0]))
    assert (await streams[0].read()).WhichOneof("response") == "response_headers"
    assert picker.in_flight[f"http://{chosen[0][0]}"] == 1
    await streams[0].call.done_writing()
    assert await streams[0].ends() is grpc.StatusCode.OK
    await until(lambda: len(picker.in_flight) == 2)
    streams[1].call.cancel()
    await until(lambda: len(picker.in_flight) == 1)


@pytest.mark.parametrize("metadata", [True, False])
async def test_a_request_counts_at_the_replica_that_served_it(picker: PickerUnderTest, metadata: bool) -> None:
    stream = picker.open_stream()
    chosen = await stream.choose()
    attributes = {"upstream.address": chosen[1], "response.code_details": "via_upstream"}
    head = answer_head(served=chosen[1]) if metadata else answer_head(attributes=attributes)
    await stream.send(head)
    await stream.read()
    await until(lambda: picker.in_flight == {f"http://{chosen[1]}": 1})
    following = [(await picker.open_stream().choose())[0] for _ in range(2)]
    assert chosen[0] not in following, "it did not answer"


async def test_an_answer_of_envoys_own_ejects_the_replica(picker: PickerUnderTest) -> None:
    stream = picker.open_stream()
    chosen = await stream.choose()
    attributes = {"response.code_details": "upstream_reset_before_response_started"}
    await stream.send(answer_head(503, attributes=attributes, ends=True))
    await stream.read()
    assert await stream.ends() is grpc.StatusCode.OK
    assert picker.in_flight == {}
    assert chosen[0] not in await picker.open_stream().choose()


async def test_a_full_replica_is_avoided_for_a_moment(picker: PickerUnderTest) -> None:
    stream = picker.open_stream()
    chosen = await stream.choose()
    await stream.send(answer_head(503, {"retry-after": "1"}, served=chosen[0], ends=True))
    await stream.read()
    assert await stream.ends() is grpc.StatusCode.OK
    assert chosen[0] not in await picker.open_stream().choose()


async def test_streamed_answers_are_sent_back_and_charged(picker: PickerUnderTest) -> None:
    stream = picker.open_stream()
    chosen = await stream.choose()
    await stream.send(answer_head(served=chosen[0], headers={"content-type": "text/event-stream"}))
    await stream.read()
    for number in range(3):
        await stream.send(answer_body(b"data: 1\n\n", ends=number == 2))
        piece = (await stream.read()).response_body.response.body_mutation.streamed_response
        assert (piece.body, piece.end_of_stream) == (b"data: 1\n\n", number == 2)
    assert await stream.ends() is grpc.StatusCode.OK
    await until(lambda: not picker.in_flight)


async def test_a_model_goes_by_each_of_its_names(picker: PickerUnderTest) -> None:
    await picker.publish(m=route_to(ADDRESSES[0], aliases=["other"]), n=route_to(ADDRESSES[1]))
    assert await picker.open_stream().choose(b'{"model": "other", "prompt": ""}') == [ADDRESSES[0]]
    assert await picker.open_stream().choose(b'{"model": "n", "prompt": ""}') == [ADDRESSES[1]]
    status, _, _, body = refusal(await picker.open_stream().send_request(b'{"model": "o"}'))
    assert (status, body["error"]["message"]) == (404, "The model `o` does not exist.")


async def test_a_name_at_the_engine_is_written_into_the_body(picker: PickerUnderTest) -> None:
    row = route_to(ADDRESSES[0])
    replica = row.replicas[0]
    await picker.publish(m=row.model_copy(update={"replicas": [type(replica)(
        name=replica.name, url=replica.url, ready=True, upstream_model="org/model"
    )]}))  # fmt: skip
    stream = picker.open_stream()
    reply = await stream.send_request(headers={**HEADERS, "content-length": str(len(BODY))})
    piece = (await stream.read()).request_body.response.body_mutation.streamed_response
    assert json.loads(piece.body)["model"] == "org/model"
    assert headers_set(reply)["content-length"] == str(len(piece.body))


async def test_the_engine_gets_the_fleets_key_and_no_header_of_the_clients(
    start_picker: StartPicker, tmp_path: Path
) -> None:
    roots = tmp_path / "roots"
    roots.write_text("root\n")
    digest = digest_key(KEY)
    access = {"fleet": "uid", "key_digests": [digest], "identities": {digest: Identity(tenant="team")}}
    picker = await start_picker(engine_key=roots, **access)
    for key, status in (("", 401), ("sk-wrong", 401)):
        headers = {**HEADERS, "authorization": f"Bearer {key}"}
        assert refusal(await picker.open_stream().send_request(headers=headers))[0] == status
    forged = {
        "x-paternoster-identity": "e30=", "x-paternoster-resume": "1", "cookie": "a=b", "x-api-key": "k",
        "x-gateway-destination-endpoint": "10.9.9.9:1", "x-forwarded-for": "10.9.9.9", "x-envoy-expected-rq-timeout-ms":
        "1", "user-agent": "test", "x-forwarded-proto": "https",
    }  # fmt: skip
    reply = await picker.open_stream().send_request(headers={**HEADERS, "authorization": f"Bearer {KEY}", **forged})
    headers = headers_set(reply)
    assert headers["authorization"] == f"Bearer {derive_key('root', GATEWAY_TO_ENGINE, 'uid')}"
    assert Identity.decode(headers[HEADER.lower()]).tenant == "team"
    assert set(headers["x-gateway-destination-endpoint"].split(",")) == set(ADDRESSES)
    removed = set(reply.request_headers.response.header_mutation.remove_headers)
    assert removed == {"x-paternoster-resume", "cookie", "x-api-key", "x-forwarded-for"}


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ({":path": "/metrics", ":method": "GET"}, 404),
        ({":path": "/v1/chat/completions/../../stats"}, 404),
        ({":method": "PUT"}, 405),
        ({":path": "/v1/models", ":method": "POST"}, 405),
        ({"content-encoding": "gzip"}, 415),
        ({"a": "a" * 40_000}, 431),
    ],
)
async def test_what_no_client_may_reach_is_refused_by_its_headers(
    picker: PickerUnderTest, head: dict[str, str], status: int
) -> None:
    stream = picker.open_stream()
    await stream.send(request_head({**HEADERS, **head}))
    assert refusal(await stream.read())[0] == status
    assert await stream.ends() is grpc.StatusCode.OK


async def test_models_are_listed(picker: PickerUnderTest) -> None:
    for path, expected in (("/v1/models", ["m"]), ("/v1/models/m", "m")):
        stream = picker.open_stream()
        await stream.send(request_head({":method": "GET", ":path": path}, ends=True))
        status, _, _, body = refusal(await stream.read())
        assert status == 200
        assert (body["id"] if path.endswith("/m") else [each["id"] for each in body["data"]]) == expected


async def test_a_subset_is_kept_to(picker: PickerUnderTest) -> None:
    for subset in ([ADDRESSES[1]], ADDRESSES[1]):
        assert await picker.open_stream().choose(subset=subset) == [ADDRESSES[1]]
    for subset in ([], "10.9.9.9:1"):
        status, reason, _, _ = refusal(await picker.open_stream().send_request(subset=subset))
        assert (status, reason) == (503, "rejected-no-endpoints")


async def test_a_fleet_without_a_ready_replica_is_503(picker: PickerUnderTest) -> None:
    await picker.publish(m=route_to(*ADDRESSES, ready=False, hold=False, retry_after_seconds=7))
    status, reason, headers, body = refusal(await picker.open_stream().send_request())
    assert (status, reason, headers["retry-after"]) == (503, "rejected-no-endpoints", "7")
    assert body["error"]["type"] == "ServiceUnavailableError"


async def test_a_request_is_held_until_a_replica_is_ready(picker: PickerUnderTest) -> None:
    await picker.publish(m=route_to(*ADDRESSES, ready=False))
    held, left = picker.open_stream(), picker.open_stream()
    for stream in (held, left):
        await stream.send(request_head(), request_body(BODY, ends=True))
    count_held = picker.running.picker.dispatcher.count_held
    await until(lambda: count_held("m") == 2)
    left.call.cancel()
    await until(lambda: count_held("m") == 1)
    await picker.publish(m=route_to(ADDRESSES[2]))
    assert headers_set(await held.read())["x-gateway-destination-endpoint"] == ADDRESSES[2]


async def test_what_is_beyond_the_queue_is_shed(picker: PickerUnderTest) -> None:
    await picker.publish(m=route_to(ADDRESSES[0], max_in_flight=1, max_held=0))
    await picker.open_stream().choose()
    status, reason, headers, body = refusal(await picker.open_stream().send_request())
    assert (status, reason) == (429, "rejected-saturated")
    assert int(headers["retry-after"]) >= 1
    assert body["error"]["type"] == "RateLimitError"


async def test_a_deadline_that_passes_is_504(picker: PickerUnderTest) -> None:
    await picker.publish(m=route_to(ADDRESSES[0], max_in_flight=1))
    await picker.open_stream().choose()
    status, reason, _, _ = refusal(
        await picker.open_stream().send_request(b'{"model": "m", "prompt": "", "deadline_ms": 50}')
    )
    assert (status, reason) == (504, "rejected-ttl-expired")


async def test_an_error_has_the_form_of_its_api(picker: PickerUnderTest) -> None:
    headers = {**HEADERS, ":path": "/v1/messages?beta=true", "x-request-id": "id-1"}
    status, _, _, body = refusal(await picker.open_stream().send_request(b'{"model": "o"}', headers=headers))
    assert (status, body["type"], body["request_id"]) == (404, "error", "id-1")


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model": 1}', b'{"model": "m"' + b',"a":[]' * 140_000 + b"}"])
async def test_a_body_that_is_none_is_400(picker: PickerUnderTest, body: bytes) -> None:
    stream = picker.open_stream()
    pieces = [body[start : start + 60_000] for start in range(0, len(body), 60_000)]
    await stream.send(
        request_head(), *(request_body(each, ends=False) for each in pieces), request_body(b"", ends=True)
    )
    assert refusal(await stream.read())[0] == 400


async def test_a_body_that_does_not_end_is_408(start_picker: StartPicker) -> None:
    picker = await start_picker(PickerLimits(body_timeout=0.2))
    stream = picker.open_stream()
    await stream.send(request_head(), request_body(b"{", ends=False))
    assert refusal(await stream.read())[0] == 408
    assert await stream.ends() is grpc.StatusCode.OK


async def test_an_answer_that_does_not_end_is_let_go(start_picker: StartPicker) -> None:
    picker = await start_picker(PickerLimits(stream_timeout=0.5))
    stream = picker.open_stream()
    await stream.choose()
    assert await stream.ends() is grpc.StatusCode.OK
    assert picker.in_flight == {}


async def test_streams_and_bytes_are_bounded(start_picker: StartPicker) -> None:
    picker = await start_picker(PickerLimits(max_streams=8, max_held_body_bytes=2**20))
    streams = [picker.open_stream() for _ in range(9)]
    replies = []
    for stream in streams:
        replies.append(await stream.send_request())
    kinds = [each.WhichOneof("response") for each in replies]
    assert kinds[0] == "request_headers"
    status, reason, _, _ = refusal(replies[-1])
    assert (status, reason) == (503, "rejected-saturated")
    for stream in streams:
        stream.call.cancel()
    await until(lambda: not picker.in_flight)
    stream = picker.open_stream()
    pieces = [request_body(b"a" * 60_000, ends=False) for _ in range(16)]
    await stream.send(request_head(), *pieces)  # one party alone has seven eighths
    assert refusal(await stream.read())[:2] == (503, "rejected-saturated")
    await picker.open_stream().choose()


async def test_another_protocol_is_a_fault_that_is_named(picker: PickerUnderTest) -> None:
    stream, head = picker.open_stream(), request_head()
    head.protocol_config.request_body_mode = 2
    await stream.send(head)
    status, _, _, body = refusal(await stream.read())
    assert status == 500
    assert "request_body_mode is BUFFERED: must be FULL_DUPLEX_STREAMED" in body["error"]["message"]
    stream = picker.open_stream()
    await stream.choose()
    await stream.send(answer_body(b"", ends=True))
    assert await stream.ends() is grpc.StatusCode.OK, "Envoy goes on by itself"


async def test_a_request_that_is_held_at_a_shutdown_gets_its_replica(picker: PickerUnderTest) -> None:
    await picker.publish(m=route_to(*ADDRESSES, ready=False))
    stream = picker.open_stream()
    await stream.send(request_head(), request_body(BODY, ends=True))
    await until(lambda: picker.running.picker.dispatcher.count_held("m") == 1)
    picker.running.picker.shutdown.begun = True
    await picker.publish(m=route_to(ADDRESSES[2]))
    assert headers_set(await stream.read())["x-gateway-destination-endpoint"] == ADDRESSES[2]
    assert (await stream.read()).WhichOneof("response") == "request_body"
    assert await stream.ends() is grpc.StatusCode.OK, "no process follows its answer"
    assert picker.in_flight == {}


async def test_a_shutdown_lets_answers_go_and_refuses_requests(picker: PickerUnderTest) -> None:
    stream = picker.open_stream()
    await stream.choose()
    async with grpc.aio.insecure_channel(picker.running.health) as channel:
        health = HealthStub(channel)

        async def check(service: str) -> int:
            return int((await health.Check(HealthCheckRequest(service=service))).status)

        services = ("liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "")
        await until(lambda: picker.running.source.has_table)
        assert [await check(each) for each in services] == [HealthCheckResponse.SERVING] * 4
        with pytest.raises(grpc.aio.AioRpcError):
            await check("another")
        picker.running.picker.shutdown.begun = True
        not_serving = HealthCheckResponse.NOT_SERVING
        assert [await check(each) for each in services] == [HealthCheckResponse.SERVING, *[not_serving] * 3]
    status, reason, _, _ = refusal(await picker.open_stream().send_request())
    assert (status, reason) == (503, "rejected-shutting-down")
    picker.running.picker.release_answers()
    assert await stream.ends() is grpc.StatusCode.OK
    assert picker.in_flight == {}
