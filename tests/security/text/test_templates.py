"""A chat template is a stranger's program: it ends in time and memory, and what it raises is a 400."""

import os
import signal
from typing import Any

import pytest

from paternoster_engine.chat import renderer as module
from paternoster_engine.chat.errors import ChatTemplateError, RendererLost
from paternoster_engine.chat.renderer import Renderer
from paternoster_engine.limited.process import LimitedProcess, ProcessEnded
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.compiler import GrammarCompiler
from paternoster_engine.sampling.grammars.errors import GrammarProcessLost
from paternoster_engine.sampling.grammars.source import GrammarSource
from paternoster_engine.sampling.grammars.vocabulary import Vocabulary

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
ENDLESS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "power": "{{ (messages | length + 9) ** (10 ** 8) }}",
    "text in memory": "{% set x = 'a' * 10 ** 9 * messages | length %}{{ x | length }}",
    "list in memory": "{% set x = [0] * 10 ** 10 %}",
    "doubling": "{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "output": "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
    "one output": "{{ (messages | length) * 10 ** 8 * 'x' }}",
    "recursion": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "range": "{{ range(10 ** 10) | list }}",
    "padding": "{{ '%999999999999d' | format(1) }}",
    "center": "{{ 'x' | center(10 ** 12) }}",
    "words": "{{ lipsum(n=10 ** 6) }}",
    "division": "{{ 1 / 0 }}",
    "overflow": "{{ 2.0 ** 9999 }}",
}
NEVER_COMPILED = {
    "folded power": "{{ 10 ** (10 ** 8) }}",
    "folded text": "{{ 'a' * 10 ** 10 }}",
    "folded output": "{{ 'x' * 10 ** 9 }}",
    "nested": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "unknown tag": "{% nothing %}",
}


def _renderer(source: str) -> Renderer:
    return Renderer(source, {})


@pytest.mark.parametrize("name", ENDLESS)
def test_a_hostile_template_is_ended_and_the_next_conversation_served(name: str) -> None:
    renderer = _renderer("{% if messages[0].content == 'attack' %}" + ENDLESS[name] + "{% endif %}fine")
    try:
        with pytest.raises(ChatTemplateError, match=r"^the model's chat template (fails|takes more|makes more)"):
            renderer.render([{"role": "user", "content": "attack"}], 10_000)
        assert renderer.render([{"role": "user", "content": "x"}], 10_000) == "fine"
    finally:
        renderer.close()


@pytest.mark.parametrize("name", NEVER_COMPILED)
def test_a_template_that_does_not_compile_is_tried_once(name: str) -> None:
    renderer = _renderer(NEVER_COMPILED[name])
    try:
        with pytest.raises(ChatTemplateError, match=r"compile|fails"):
            renderer.render([], 10_000)
        tried = renderer._process
        with pytest.raises(ChatTemplateError, match=r"compile|fails"):
            renderer.render([], 10_000)
        assert renderer._process is tried
    finally:
        renderer.close()


def test_memory_is_bounded_by_the_kernel() -> None:
    renderer = _renderer("{{ 'x' * (messages[0].content | int) }}")
    try:
        assert renderer.render([{"role": "user", "content": "3"}], 10) == "xxx"
        # Before the process may have ended by it.
        with open(f"/proc/{renderer._process.pid}/limits") as limits:  # type: ignore[union-attr]
            assert any(line.split()[:4] == ["Max", "address", "space", str(module.MEMORY)] for line in limits)
        with pytest.raises(ChatTemplateError):
            renderer.render([{"role": "user", "content": str(400 * 2**20)}], 10_000)
    finally:
        renderer.close()


def test_the_process_has_none_of_the_engines_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "canary")
    renderer = _renderer("x")
    try:
        renderer.render([], 10)
        with open(f"/proc/{renderer._process.pid}/environ") as environment:  # type: ignore[union-attr]
            assert "canary" not in environment.read()
    finally:
        renderer.close()


def _kill_before_answers(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The kernel kills the process before its next ``times`` answers."""
    remaining, request_answer = iter(range(times)), LimitedProcess.request_answer

    def request_after_kill(process: LimitedProcess, *given: Any) -> dict[str, Any]:
        if next(remaining, None) is not None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        return request_answer(process, *given)

    monkeypatch.setattr(LimitedProcess, "request_answer", request_after_kill)


def test_a_process_that_is_killed_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = _renderer("{{ messages[0].content }}")
    try:
        assert renderer.render(CHAT["messages"], 10) == "Hi"
        assert renderer._process is not None
        os.kill(renderer._process.pid, signal.SIGKILL)
        renderer._process.wait()
        assert renderer.render(CHAT["messages"], 10) == "Hi"
        _kill_before_answers(monkeypatch, 1)
        assert renderer.render(CHAT["messages"], 10) == "Hi", "the client sees nothing of one loss"
        # The second process is killed while it starts.
        _kill_before_answers(monkeypatch, 2)
        with pytest.raises(RendererLost):
            renderer.render(CHAT["messages"], 10)
        assert renderer.render(CHAT["messages"], 10) == "Hi"
    finally:
        renderer.close()


def test_a_process_that_stands_still_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = _renderer("{{ messages[0].content }}")
    try:
        assert renderer.render(CHAT["messages"], 10) == "Hi"
        assert renderer._process is not None
        os.kill(renderer._process.pid, signal.SIGSTOP)
        with pytest.raises(ProcessEnded):
            renderer._process.request_answer({}, 0.3)
        assert renderer.render(CHAT["messages"], 10) == "Hi"
    finally:
        renderer.close()


def test_grammars_are_compiled_though_their_process_is_killed(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = GrammarCompiler(lambda: Vocabulary.from_tokenizer(tokenizer), tokenizer.encode)
    source = GrammarSource("regex", "[ab]+")
    try:
        _kill_before_answers(monkeypatch, 1)
        assert compiler.compile(source), "killed while it started"
        _kill_before_answers(monkeypatch, 1)
        assert compiler.compile(source), "killed while it compiled"
        _kill_before_answers(monkeypatch, 2)
        with pytest.raises(GrammarProcessLost):
            compiler.compile(source)
        assert compiler.compile(source)
    finally:
        compiler.close()


async def test_over_http_it_is_400_and_others_are_served_meanwhile(
    serve: Any, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "chat_template", ENDLESS["loops"])
    async with serve() as server:
        response = await server.client.post("/v1/chat/completions", json=CHAT)
        assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")
        assert "takes more than 1 s of a processor" in response.json()["error"]["message"]
        assert (await server.client.post("/v1/completions", json={"prompt": "x"})).status_code == 200


async def test_a_model_without_a_template_says_so(
    serve: Any, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "chat_template", None)
    async with serve() as server:
        response = await server.client.post("/tokenize", json=CHAT)
        assert response.json()["error"]["message"] == "the model file has no chat template"
        assert response.status_code == 400
