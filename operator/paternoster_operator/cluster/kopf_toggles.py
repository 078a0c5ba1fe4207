"""kopf's barrier before the first handler, at a cost that grows with the objects and not with their square.

Until everything that is listed at the start is indexed, kopf has a toggle and a waiting task for each object, and as a
toggle comes or goes, 1.45 wakes every task. Here they wake where what they wait for has changed.
"""

from typing import Any

from kopf._cogs.aiokits.aiotoggles import Toggle, ToggleSet


def install_toggles() -> None:
    """Have kopf's sets of toggles wake those that wait for them only as the state of the set changes."""
    ToggleSet.make_toggle = make_toggle  # type: ignore[assignment, method-assign]
    ToggleSet.drop_toggle = drop_toggle  # type: ignore[assignment, method-assign]


async def make_toggle(toggles: Any, is_on: bool = False, *, name: str | None = None) -> Toggle:
    """Add a toggle to the set, as kopf's own method."""
    toggle = Toggle(is_on, name=name, condition=toggles._condition)
    async with toggles._condition:
        before = toggles.is_on()
        toggles._toggles.add(toggle)
        if toggles.is_on() != before:
            toggles._condition.notify_all()
    return toggle


async def drop_toggle(toggles: Any, toggle: Toggle) -> None:
    """Take a toggle out of the set, as kopf's own method."""
    async with toggles._condition:
        before = toggles.is_on()
        toggles._toggles.discard(toggle)
        if toggles.is_on() != before:
            toggles._condition.notify_all()
