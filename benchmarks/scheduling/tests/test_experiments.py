"""The experiments' traffic and tables, and each experiment at work on a small machine."""

from itertools import pairwise

import pytest

from paternoster_simulator.profile import load_profile
from paternoster_traces.synthetic import generate_rows
from paternoster_traces.trace import TraceRow
from scheduling import memory, modes, prompts, sharing
from scheduling.experiment import Context
from scheduling.serving import Arrival, serve
from scheduling.table import Table, shown
from scheduling.traffic import at_times, conversations, merged, poisson
from scheduling.virtual_engine import Machine


@pytest.fixture
def context() -> Context:
    machine = Machine.of(load_profile("llama-3-8b-h100"), 1e-4).changed(
        max_num_seqs=64, max_batched_tokens=512, max_model_len=4096
    )
    return Context(machine, generate_rows(2500), 1.0, 0.05, quiet=True)


def test_each_turn_begins_with_all_that_was_said() -> None:
    turns = conversations(1, 3, rate=1.0, pause=2.0)
    for earlier, later in pairwise(turns):
        conversation = [*earlier.prompt, *earlier.answer]
        assert list(later.prompt[: len(conversation)]) == conversation
        assert later.time > earlier.time


def test_a_poisson_process_has_its_rate_and_repeats() -> None:
    times = poisson(50.0, 100.0, seed=3)
    assert times == sorted(times) == poisson(50.0, 100.0, seed=3)
    assert 4700 < len(times) < 5300
    assert times[-1] < 100.0


def test_streams_are_merged_in_order_of_time() -> None:
    rows = [TraceRow(0.0, 4, 2)]
    both = merged(at_times(rows, [1.0, 3.0]), at_times(rows, [2.0]))
    assert [arrival.time for arrival in both] == [1.0, 2.0, 3.0]


def test_the_peak_of_blocks_is_that_of_what_was_held_at_once(context: Context) -> None:
    served = serve(context.machine, [Arrival(0.0, [1] * 31, 3), Arrival(0.0, [2] * 10, 3)])
    # 33 known tokens in two blocks while the other still holds its one.
    assert memory._peak_blocks(served, 32) == 3


def test_static_utilisation_of_equal_lengths_is_whole() -> None:
    assert modes.static_utilisation([7] * 8, 4) == 1
    assert modes.static_utilisation([1, 3], 2) == pytest.approx(2 / 3)
    assert modes.static_utilisation([5], 4) == pytest.approx(1 / 4)


def test_a_row_must_have_as_many_cells_as_columns() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells: must be 2"):
        Table("t", "n", ["a", "b"], [["x"]])


def test_a_table_as_markdown_and_as_a_document() -> None:
    table = Table("t", "n", ["a", "b"], [["x", 1234.5]])
    assert table.markdown().splitlines()[-1] == "| x | 1,234 |"
    assert table.document()["rows"] == [{"a": "x", "b": 1234.5}]
    assert [shown(cell) for cell in (0.12345, 12.34, 5, "y")] == ["0.123", "12.3", "5", "y"]


def test_chunks_keep_the_gaps_short_where_a_whole_prompt_does_not(context: Context) -> None:
    rows = {str(row[0]): row for row in prompts._chunked(context).rows}
    off = rows["off: a prompt is computed whole, alone"]
    assert all(rows[f"on: {budget} tokens a step"][3] < off[3] for budget in prompts.BUDGETS)


def test_a_pool_of_half_the_need_preempts_and_a_reserve_does_not(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "REQUESTS", 150)
    admission, fate = memory.run(context)
    preempted = {row[0]: row[3] for row in admission.rows}
    assert preempted["greedy"] > 0
    assert preempted["no-evict"] == preempted["enough memory"] == 0
    assert {row[0]: row[4] for row in fate.rows}["swap"] == 0


def test_shares_classes_and_deadlines(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "SECONDS", 5.0)
    monkeypatch.setattr(sharing, "FLOOD", 100.0)
    monkeypatch.setattr(sharing, "DEADLINES", (0.2, 1.0))
    fairness, priority, deadlines = sharing.run(context)
    waits = {row[0]: row[2] for row in fairness.rows}
    assert waits["fair-share, 64 at once"] < waits["fcfs"]
    firsts = {row[0]: row[3] for row in priority.rows}
    assert firsts["priority, 64 at once"] < firsts["fcfs"]
    assert [row[4] for row in deadlines.rows] == [0, 0]
    assert all(row[3] > 0 for row in deadlines.rows[1:])
