"""Ids and times of frames: the same at each engine of a stream, and at random outside of one."""

import random
import sys
import time
import uuid
from types import ModuleType

import pytest

from paternoster_vllm.drawn_ids import CURRENT, StreamDraws, draw_choices, replace_sources


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """One of vLLM's API server that has imported all sources."""
    made = ModuleType("vllm.parser.mistral")
    vars(made).update(uuid=uuid, time=time, choices=random.choices)
    monkeypatch.setitem(sys.modules, made.__name__, made)
    replace_sources()
    replace_sources()
    return made


def draw(module: ModuleType, draws: StreamDraws | None) -> tuple[str, str, float]:
    token = CURRENT.set(draws)
    try:
        return module.uuid.uuid4().hex, "".join(module.choices("abcdef", k=9)), module.time.time()
    finally:
        CURRENT.reset(token)


def test_two_engines_draw_the_same_for_one_stream(module: ModuleType) -> None:
    first, second = (draw(module, StreamDraws("0a" * 16, 1795792422)) for _ in range(2))
    assert first == second
    assert first[2] == 1795792422
    assert draw(module, StreamDraws("0b" * 16, 1795792422))[:2] != first[:2]


def test_no_id_of_a_stream_is_drawn_twice(module: ModuleType) -> None:
    draws = StreamDraws("0a" * 16, 1)
    assert len({draw(module, draws)[0] for _ in range(100)}) == 100


def test_outside_of_a_stream_the_standard_library_draws(module: ModuleType) -> None:
    first, second = (draw(module, None) for _ in range(2))
    assert first[0] != second[0]
    assert abs(first[2] - time.time()) < 60
    assert module.uuid.UUID is uuid.UUID
    assert module.choices is draw_choices


def test_modules_of_the_engine_keep_their_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("vllm.v1.metrics.stats")
    vars(made).update(time=time)
    monkeypatch.setitem(sys.modules, made.__name__, made)
    replace_sources()
    assert made.time is time
