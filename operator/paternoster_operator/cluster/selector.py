"""A label selector as the text that an API server's list calls take. Pure."""

from collections.abc import Mapping
from typing import Any

_FORMS = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}
"""Forms by operator."""


def write_selector(selector: Mapping[str, Any]) -> str:
    """``selector`` is a ``metav1.LabelSelector``; all of its parts must hold."""
    parts = [f"{key}={value}" for key, value in sorted(selector.get("matchLabels", {}).items())]
    for each in selector.get("matchExpressions", ()):
        form = _FORMS[each["operator"]]
        parts.append(form.format(key=each["key"], values=",".join(each.get("values", ()))))
    return ",".join(parts)
