"""An engine built from its start-up settings, and settings that cannot be built."""

import logging
from pathlib import Path

import pytest
import torch

from paternoster_contract.labels import FORCE_PREEMPT_ENV
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine import build
from paternoster_engine.build import build_engine
from paternoster_engine.chat.template import ChatTemplate
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.errors import ModelError
from paternoster_engine.runner.kv_pool import kv_block_bytes


def test_the_default_model_answers(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCE_PREEMPT_ENV, "3")
    args = EngineArgs(kv_cache_memory=50_000_000, max_num_seqs=8, live_cap=4, max_model_len=512, watermark_percent=10)
    with caplog.at_level(logging.INFO):
        engine, tokenizer, config = build_engine(args)
    blocks = engine.scheduler.config.num_blocks
    assert f"KV pool = {blocks * 32} tokens = {blocks * 32 / 512:.1f} concurrent at max_model_len 512" in caplog.text
    assert (engine.scheduler.live_cap, engine.scheduler.config.watermark_blocks) == (4, blocks // 10)
    assert config.context_length == 8192

    template = ChatTemplate(tokenizer.chat_template or "", tokenizer.special_names)
    messages = [{"role": "user", "content": "What is the capital of Japan?"}]
    prompt = template.render(messages, 10_000, add_generation_prompt=True)
    params = SamplingParams(max_tokens=30, temperature=0.0)
    request = Request(RequestSpec("q", tokenizer.encode(prompt), params, eos_token_ids=tokenizer.eos_token_ids))
    engine.scheduler.add(request)
    while engine.scheduler.has_work:
        engine.step()
    assert tokenizer.decode(request.output) == "The capital of Japan is Tokyo."
    assert request.finish_reason == "stop"
    assert request.num_preemptions > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "package://no_such_package_here"}, "no_such_package_here.*not installed"),
        (
            {"chat_template": "/no/such/file.jinja"},
            "chat_template is '/no/such/file.jinja': must be a template or a file",
        ),
        ({"max_model_len": 9000}, "max_model_len is 9000: must be at most 8192"),
        ({"preemption": "swap", "swap_memory": 1000}, "swap_memory is 1000 bytes: must be at least"),
        ({"kv_cache_memory": 1000}, "kv_cache_memory is 1000 bytes: must be at least"),
        ({"kv_cache_memory": 0, "device": "cpu"}, "kv_cache_memory is 0 bytes: must be at least"),
    ],
)
def test_settings_that_cannot_be_built(settings: dict, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build_engine(EngineArgs(**settings))


@pytest.mark.parametrize("as_file", [True, False])
def test_another_chat_template(as_file: bool, tmp_path: Path) -> None:
    template = "{{ messages[0].content }}!"
    path = tmp_path / "template.jinja"
    path.write_text(template)
    args = EngineArgs(kv_cache_memory=50_000_000, max_model_len=64, chat_template=str(path) if as_file else template)
    _, tokenizer, _ = build_engine(args)
    assert tokenizer.chat_template == template


def test_the_pool_takes_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is loaded as on CUDA, runs its largest step, and serves from the same weights."""
    device_types = []

    def free(device: torch.device) -> tuple[int, int]:
        device_types.append(device.type)
        return 40_000_000, 80_000_000

    monkeypatch.setattr(build, "measures_memory", lambda limits, device: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", free)
    loads = []
    load = build.load_model
    monkeypatch.setattr(build, "load_model", lambda *given: loads.append(1) or load(*given))
    args = EngineArgs(device="cpu", dtype="float32", max_num_seqs=2, max_batched_tokens=16, max_model_len=64)
    engine, _, config = build_engine(args)
    assert (device_types, loads) == (["cpu"], [1])
    assert engine.scheduler.config.num_blocks == 36_000_000 // kv_block_bytes(config, 32, torch.float32)


def test_the_force_preempt_switch_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCE_PREEMPT_ENV, "often")
    with pytest.raises(ValueError, match=f"{FORCE_PREEMPT_ENV} is 'often': must be a whole number"):
        build_engine(EngineArgs())
