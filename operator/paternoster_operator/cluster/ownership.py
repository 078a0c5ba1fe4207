"""Whose an object is, by the uids of controllers: any writer can set labels. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from paternoster_contract.labels import TEMPLATE_HASH
from paternoster_operator.cluster.port import ForeignObject


def find_controller(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference of the one that controls ``obj``, or None."""
    references = obj["metadata"].get("ownerReferences", ())
    return next((reference for reference in references if reference.get("controller")), None)


def controlled_by(obj: Mapping[str, Any], uid: str) -> bool:
    """Whether the object with that uid controls ``obj``."""
    owner = find_controller(obj)
    return owner is not None and bool(uid) and owner.get("uid") == uid


def own_pods(
    pods: Iterable[Mapping[str, Any]], replica_sets: Iterable[Mapping[str, Any]], deployment: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Pods that the Deployment made: by a ReplicaSet that it controls, from the template of that one."""
    uid = deployment["metadata"]["uid"]
    hashes = {each["metadata"]["uid"]: _read_hash(each) for each in replica_sets if controlled_by(each, uid)}
    own = []
    for pod in pods:
        owner = find_controller(pod)
        made_from = None if owner is None else hashes.get(owner.get("uid", ""))
        if made_from is not None and made_from == _read_hash(pod):
            own.append(pod)
    return own


def refuse_foreign(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises :class:`ForeignObject` where ``there`` is not controlled by whom ``wanted`` names as its controller."""
    owner = find_controller(wanted)
    assert owner is not None
    if controlled_by(there, owner["uid"]):
        return
    metadata, other = there["metadata"], find_controller(there)
    of = "nothing" if other is None else f"{other['kind']} {other['name']}"
    if other is not None and (other["kind"], other["name"]) == (owner["kind"], owner["name"]):
        of += " of another uid"
    found = f"{wanted['kind']} {metadata['namespace']}/{metadata['name']}, controlled by {of},"
    raise ForeignObject([found], f"{owner['kind']} {owner['name']}")


def _read_hash(obj: Mapping[str, Any]) -> str | None:
    labels: Mapping[str, str] = obj["metadata"].get("labels", {})
    return labels.get(TEMPLATE_HASH)
