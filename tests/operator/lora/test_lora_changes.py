"""Loads and unloads of adapters: an engine comes to what the manifest has, whatever it had, and stays there."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.admin import LoadLoraAdapter, UnloadLoraAdapter
from paternoster_contract.stats import LoraAdapterStats
from paternoster_operator.api.types.adapter import ModelAdapter
from paternoster_operator.plan.lora_adapters import (
    RETRY_SECONDS,
    find_loaded,
    is_settled,
    plan_lora_changes,
)

NAMES = st.sampled_from(["sql", "chat", "code", "old"])
ADAPTERS = st.builds(ModelAdapter, name=NAMES, source=st.sampled_from(["hf://org/a", "hf://org/b", "file:///c"]))
DESIRED = st.lists(ADAPTERS, unique_by=lambda adapter: adapter.name)
VERSIONS = st.sampled_from(["", "other"]) | ADAPTERS.map(lambda adapter: adapter.version)


def make_report(name: str, version: str, ready: bool, loading: bool, failed_at: float | None) -> LoraAdapterStats:
    fault = "" if failed_at is None else "no such folder"
    return LoraAdapterStats(name=name, version=version, ready=ready, loading=loading, fault=fault, failed_at=failed_at)


REPORTS = st.lists(
    st.builds(make_report, NAMES, VERSIONS, st.booleans(), st.booleans(), st.none() | st.floats(0, 200)),
    unique_by=lambda report: report.name,
)


@dataclass
class Engine:
    """Carries a change out at once; every load of ``broken`` adapters fails."""

    reports: dict[str, LoraAdapterStats]
    broken: frozenset[str] = frozenset()

    def carry_out(self, change: LoadLoraAdapter | UnloadLoraAdapter, now: float) -> None:
        if isinstance(change, UnloadLoraAdapter):
            del self.reports[change.lora_name]
            return
        name, before = change.lora_name, self.reports.get(change.lora_name)
        fails = name in self.broken
        ready = not fails or (before is not None and before.ready)
        self.reports[name] = make_report(name, change.lora_version, ready, False, now if fails else None)


@given(DESIRED, REPORTS, st.frozensets(NAMES), st.floats(200, 400))
def test_an_engine_comes_to_what_is_desired_and_stays(
    desired: list[ModelAdapter], seen: list[LoraAdapterStats], broken: frozenset[str], now: float
) -> None:
    # What is being loaded ends by itself.
    ended = [report.model_copy(update={"loading": False}) for report in seen]
    engine = Engine({report.name: report for report in ended}, broken)
    changes = plan_lora_changes(desired, ended, now)
    for change in (*changes.unloads, *changes.loads):
        engine.carry_out(change, now)
    reports = [*engine.reports.values()]
    by_hand = {report.name for report in seen if not report.version}
    assert {report.name for report in reports} - by_hand == {adapter.name for adapter in desired} - by_hand
    assert by_hand <= {report.name for report in reports}, "what was loaded by the admin API stays"
    assert all(is_settled(adapter, reports) for adapter in desired)
    again = plan_lora_changes(desired, reports, now + RETRY_SECONDS / 2)
    tried_before = {r.name for r in ended if r.fault and now - (r.failed_at or 0) < RETRY_SECONDS}
    assert not again.unloads
    assert {load.lora_name for load in again.loads} <= tried_before, "a failure before this look may be due by now"
    working = {adapter.name for adapter in desired} - broken - tried_before
    assert working <= {*find_loaded(desired, reports)} | {r.name for r in ended if not r.ready}


@given(DESIRED, REPORTS, st.floats(0, 400))
def test_every_change_has_its_reason(desired: list[ModelAdapter], seen: list[LoraAdapterStats], now: float) -> None:
    reports, wanted = {report.name: report for report in seen}, {adapter.name: adapter for adapter in desired}
    changes = plan_lora_changes(desired, seen, now)
    own = {name for name, report in reports.items() if report.version}
    assert {change.lora_name for change in changes.unloads} == own - wanted.keys()
    loads = {load.lora_name: load for load in changes.loads}
    for name, adapter in wanted.items():
        report = reports.get(name)
        is_new = report is None or report.version != adapter.version
        is_due = report is not None and report.failed_at is not None and now - report.failed_at >= RETRY_SECONDS
        assert (name in loads) == (is_new or (is_due and report is not None and not report.loading))
    for name, load in loads.items():
        assert (load.lora_path, load.lora_version) == (wanted[name].source, wanted[name].version)
        assert load.load_inplace
        assert not load.wait


@given(ADAPTERS, ADAPTERS)
def test_a_version_is_that_of_the_files_alone(one: ModelAdapter, other: ModelAdapter) -> None:
    assert (one.version == other.version) == (one.source == other.source)
    pinned = one.model_copy(update={"digest": f"sha256:{'0' * 64}", "keys": ["team"]})
    assert pinned.version != one.version == one.model_copy(update={"keys": ["team"]}).version
