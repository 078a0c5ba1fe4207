"""The record of names: what it keeps, for how long, and how it is shared out by namespace."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_operator.cluster.port import Key
from paternoster_operator.names import record as name_record
from paternoster_operator.names.record import MAX_RECORD_BYTES, RESERVED_SECONDS, Entry, NameRecord, update_record
from paternoster_operator.names.served_names import Claim
from paternoster_operator.settings import Names

_KEYS = st.builds(Key, st.sampled_from(["team-a", "team-b"]), st.sampled_from("xyz"))
_NAMES = st.lists(st.sampled_from(["llama", "qwen", "llama:latest", "é\n"]), min_size=1, max_size=3, unique=True)
_WANTED = st.dictionaries(_KEYS, _NAMES.map(tuple), max_size=5)


def list_names(record: NameRecord, key: Key) -> tuple[str, ...]:
    return record.fleets[key].names if key in record.fleets else ()


def claims(record: NameRecord, wanted: dict[Key, tuple[str, ...]]) -> list[Claim]:
    return [Claim(key, names, list_names(record, key), "2026-01-01T00:00:00Z") for key, names in wanted.items()]


def update(record: NameRecord, wanted: dict[Key, tuple[str, ...]], now: int = 0) -> NameRecord:
    return update_record(record, claims(record, wanted), wanted, Names.GLOBAL, now).record


@given(st.lists(_WANTED, max_size=4))
def test_what_is_encoded_is_read_again_and_a_name_has_one_fleet(edits: Sequence[dict[Key, tuple[str, ...]]]) -> None:
    record = NameRecord()
    for now, wanted in enumerate(edits):
        record = update(record, wanted, now)
        assert NameRecord.decode(record.encode()) == record
        names = [name for entry in record.fleets.values() for name in entry.names]
        assert len(names) == len(set(names))
        assert update(record, wanted, now) == record, "nothing that changed is nothing to write"


@given(_WANTED, st.lists(_WANTED, max_size=3))
def test_no_edit_of_others_takes_a_name_to_another_namespace(
    first: dict[Key, tuple[str, ...]], edits: Sequence[dict[Key, tuple[str, ...]]]
) -> None:
    """Team A's fleets are deleted, made again and edited by others' leave: its names stay until it gives them up."""
    record = update(NameRecord(), first)
    mine = {key: names for key, names in first.items() if key.namespace == "team-a"}
    had = {name for key in mine for name in list_names(record, key)}
    for edit in edits:
        others = {key: names for key, names in edit.items() if key.namespace == "team-b"}
        for fleets in (others, {**others, **mine}):
            record = update(record, fleets)
            now_others = {
                name for key, entry in record.fleets.items() if key.namespace == "team-b" for name in entry.names
            }
            assert not had & now_others


def test_a_name_is_reserved_for_a_day() -> None:
    a, b = Key("team-a", "x"), Key("team-b", "x")
    record = update(NameRecord(), {a: ("llama",)})
    for now in (100, 100 + RESERVED_SECONDS - 1):
        record = update(record, {b: ("llama",)}, now)
        assert record.fleets == {a: Entry(names=("llama",), gone_since=100)}
    assert update(record, {b: ("llama",)}, 100 + RESERVED_SECONDS).fleets == {b: Entry(names=("llama",))}


def test_ten_thousand_fleets_of_one_namespace_leave_the_others_their_names() -> None:
    """Others keep the names that they have, and those that they claim later; what is beyond the share is no one's."""
    hostile = {Key("hostile", f"h{i}"): (f"h{i}", *(f"{i}-{j}-" + "x" * 400 for j in range(16))) for i in range(1000)}
    others = {Key(f"team-{i}", "m"): (f"model-{i}",) for i in range(50)}
    record = update(NameRecord(), {**hostile, Key("team-0", "m"): ("model-0",)})
    wanted = {**hostile, **others}
    made = update_record(record, claims(record, wanted), wanted, Names.GLOBAL, 0)
    assert len(made.record.encode().encode()) <= MAX_RECORD_BYTES
    assert others.keys() <= made.record.fleets.keys()
    assert made.left_out.keys() == hostile.keys() - made.record.fleets.keys()
    assert len(made.record.fleets) > 100
    left_out = next(iter(made.left_out))
    later = {**wanted, Key("team-x", "m"): hostile[left_out][:1]}
    after = update_record(made.record, claims(made.record, later), later, Names.GLOBAL, 0)
    assert after.owned.owners[hostile[left_out][0]] == Key("team-x", "m")


def test_deleted_fleets_go_from_a_full_record_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_record, "MAX_RECORD_BYTES", 120)
    gone, there = Key("team-a", "gone"), Key("team-a", "there")
    record = update(NameRecord(), {gone: ("one",)})
    record = update(record, {there: ("two",)})
    assert record.fleets == {there: Entry(names=("two",))}


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", '{"fleets": {"a": {"names": ["m"]}}}', '{"fleets": {"a/b": {"names": ["' + "m" * 600 + '"]}}}',
        json.dumps({"fleets": {"a/b": {"names": ["m"]}, "a/c": {"names": ["m"]}}}),
    ],
)  # fmt: skip
def test_what_no_operator_wrote_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the record of served names is invalid"):
        NameRecord.decode(text)
