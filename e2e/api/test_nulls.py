"""A null in a pod template, by which a field of the operator's is removed: which commands bring it to the resource."""

from collections.abc import Callable

import pytest

from paternoster_e2e.kubectl import Document, Kubectl

Manifest = Callable[..., Document]
NULLS = {"spec": {"securityContext": {"runAsUser": None, "fsGroup": 7}}}
FIRST = {"spec": {"securityContext": {"fsGroup": 7}}}


@pytest.mark.parametrize(
    ("before", "command", "stored"),
    [
        (None, ("create",), True),
        (None, ("apply",), False),
        (None, ("apply", "--server-side"), True),
        (FIRST, ("replace",), True),
        (FIRST, ("apply", "--server-side", "--force-conflicts"), True),
        (FIRST, ("apply",), False),
    ],
    ids=["create", "apply", "apply-server-side", "replace", "edit-server-side", "edit"],
)
def test_a_null_is_stored(
    kubectl: Kubectl,
    manifest: Manifest,
    namespace: str,
    before: Document | None,
    command: tuple[str, ...],
    stored: bool,
) -> None:
    """But not by a client-side apply, which drops it, as its merge patches take null for no field at all."""
    kubectl("delete", "llmd", "nulls", f"--namespace={namespace}", "--ignore-not-found")
    if before is not None:
        kubectl("apply", "--filename=-", document=manifest("nulls", podTemplate=before))
    kubectl(*command, "--filename=-", document=manifest("nulls", podTemplate=NULLS))
    context = kubectl.get("llmd", "nulls", namespace)["spec"]["podTemplate"]["spec"]["securityContext"]
    assert context == ({"runAsUser": None, "fsGroup": 7} if stored else {"fsGroup": 7})
