"""A fleet that was deleted without its children, and is created again."""

from typing import Any

CHILDREN = ("Secret", "Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment")


def test_children_without_an_owner_are_named_at_once(fleet: Any) -> None:
    fleet.apply()
    fleet.until_ready()
    fleet.kubectl("delete", "llmd", fleet.name, f"--namespace={fleet.namespace}", "--cascade=orphan")
    fleet.apply()
    message = fleet.until_stalled("ChildNotOwned")
    for kind in CHILDREN:
        assert f"{kind} {fleet.namespace}/{fleet.name}" in message, message
    assert message.count("controlled by nothing") == len(CHILDREN)
