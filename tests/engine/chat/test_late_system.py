"""System messages in the middle of a conversation: which templates write them there, and what becomes of the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.server.tool_templates import HARMONY, LLAMA3, MISTRAL, QWEN3

from paternoster_engine.chat.late_system import carries_late_system, fold_late_system, has_late_system
from paternoster_engine.chat.reshape import INSTRUCTING
from paternoster_engine.chat.template import ChatTemplate

_TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
_BEGUN = "{% if add_generation_prompt %}<assistant>{% endif %}"
CHATML = _TURNS + _BEGUN
FIRST_ONLY = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}</>{% endfor %}" + _BEGUN
)
"""Template like Qwen 3.5's."""
GATHERS = (
    "{% for m in messages if m.role == 'system' %}{{ m.content }}\n{% endfor %}"
    "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}</>{% endfor %}" + _BEGUN
)
"""Template like DeepSeek V3's: a late text changes the head of the prompt."""
DROPS = (
    "{{ messages[0].content }}{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
) + _BEGUN
LAST_IN_USER = (
    "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{% if loop.last %}{{ messages[0].content }}{% endif %}"
    "{{ m.content }}</>{% endfor %}" + _BEGUN
)
"""Template like Mistral 7B's, which drops what is not the first."""
BEHIND = _TURNS.replace("messages", "messages[:2]") + _BEGUN + _TURNS.replace("messages", "messages[2:]")


@pytest.mark.parametrize(
    ("template", "carries"),
    [
        (CHATML, True), (QWEN3, True), (LLAMA3, True), (HARMONY, True), (MISTRAL, True), (FIRST_ONLY, False),
        (GATHERS, False), (DROPS, False), (LAST_IN_USER, False), (BEHIND, False), ("{{ 1 / 0 }}", False),
    ],
)  # fmt: skip
def test_which_templates_write_a_late_system_message_in_its_place(template: str, carries: bool) -> None:
    compiled = ChatTemplate(template, {"bos_token": "<s>", "eos_token": "</s>"})
    assert carries_late_system(lambda m, begun: compiled.render(m, 10_000, add_generation_prompt=begun)) is carries


ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool"])
CONVERSATIONS = st.lists(ROLES, min_size=1, max_size=8).map(
    lambda roles: [{"role": role, "content": f"text-{index}"} for index, role in enumerate(roles)]
)


@given(CONVERSATIONS)
def test_no_text_is_lost_and_the_order_stays(messages: list[dict[str, str]]) -> None:
    folded = fold_late_system(messages)
    assert not has_late_system(folded)
    texts = "\n\n".join(message["content"] for message in folded)
    assert texts.split("\n\n") == [message["content"] for message in messages]
    if not has_late_system(messages):
        assert folded == messages
    spoken = [message["role"] for message in messages if message["role"] not in INSTRUCTING]
    spoken_roles = iter(message["role"] for message in folded if message["role"] not in INSTRUCTING)
    assert all(role in spoken_roles for role in spoken), "turns of the others stay in their order"


@given(CONVERSATIONS, CONVERSATIONS)
def test_what_comes_later_changes_nothing_before_it(messages: list[dict[str, str]], more: list[dict[str, str]]) -> None:
    """So that the prefix cache finds the turns before; what follows the assistant waits for the user's next message."""
    before, after = (
        fold_late_system(messages),
        fold_late_system([*messages, {"role": "assistant", "content": "x"}, *more]),
    )
    assert after[: len(before)] == before


def test_where_a_late_text_goes() -> None:
    system = {"role": "system", "content": "s"}
    user, assistant, tool = ({"role": role, "content": role[0]} for role in ("user", "assistant", "tool"))
    assert fold_late_system([user, system]) == [{"role": "user", "content": "u\n\ns"}]
    assert fold_late_system([user, assistant, system, user])[-1] == {"role": "user", "content": "s\n\nu"}
    assert fold_late_system([user, assistant, tool, system])[-1] == {"role": "tool", "content": "t\n\ns"}
    assert fold_late_system([user, assistant, system])[-1] == {"role": "user", "content": "s"}
