"""Label selectors as list calls take them."""

from typing import Any

import pytest

from paternoster_operator.cluster.selector import write_selector


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, "a in (1,2)"),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, "a notin (1)"),
        (
            {
                "matchLabels": {"app": "chat"},
                "matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "DoesNotExist"}],
            },
            "app=chat,a,!b",
        ),
    ],
)
def test_every_operator_is_written(selector: dict[str, Any], text: str) -> None:
    assert write_selector(selector) == text
