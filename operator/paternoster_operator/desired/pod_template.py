"""What a resource adds to its pods, laid over what the operator builds: a strategic merge, as kubectl's.

Source: the merge keys of Kubernetes' OpenAPI (``api/pod/fields.py``). Lists without keys, such as tolerations, are
appended to; there is no ``$patch``. A null removes a field of an object, such as ``securityContext.runAsUser``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from paternoster_operator.api.pod.fields import POD_SPEC, Field, fields_of, key_of
from paternoster_operator.api.pod.template import PodTemplate


def with_template(pod: Mapping[str, Any], given: PodTemplate) -> dict[str, Any]:
    """``pod``, metadata and spec, with ``given`` over it; where rules hold, what is the operator's stays."""
    metadata = {**pod["metadata"], "labels": {**given.metadata.labels, **pod["metadata"]["labels"]}}
    if given.metadata.annotations:
        metadata["annotations"] = {**given.metadata.annotations, **metadata.get("annotations", {})}
    return {**pod, "metadata": metadata, "spec": merge_fields(pod["spec"], given.spec, Field(POD_SPEC))}


def merge_fields(ours: Any, theirs: Any, field: Field) -> Any:
    """``theirs`` over ``ours``, where both are what ``field`` holds."""
    if field.keys:
        return _merged_items(ours, theirs, field)
    if field.keys is not None:
        return [*ours, *(item for item in theirs if item not in ours)]
    if field.mapping:
        return {**ours, **theirs}
    if field.scalar:
        return theirs
    fields = fields_of(field.of)
    merged = {
        name: merge_fields(ours.get(name, _make_empty(fields[name])), value, fields[name])
        for name, value in theirs.items()
        if value is not None
    }
    return {name: value for name, value in {**ours, **merged}.items() if theirs.get(name, value) is not None}


def _make_empty(field: Field) -> Any:
    """Stand-in for a field that is absent, so that no null of the other side stays."""
    return () if field.keys is not None else {}


def _merged_items(ours: Sequence[Any], theirs: Sequence[Any], field: Field) -> list[Any]:
    assert field.keys is not None
    given = {key_of(item, field.keys): item for item in theirs}
    own_keys = {key_of(item, field.keys) for item in ours}
    both = [
        merge_fields(item, given[key], field.item) if (key := key_of(item, field.keys)) in given else item
        for item in ours
    ]
    return [*both, *(item for key, item in given.items() if key not in own_keys)]
