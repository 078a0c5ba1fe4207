"""The command: quick help, and a clear word where an extra is missing."""

import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from paternoster_contract.cli.command import main
from paternoster_contract.cli.subcommands import EXTRAS, GROUP, missing_extra

SUBCOMMANDS = sorted(entry.name for entry in entry_points(group=GROUP))


def test_every_package_with_subcommands_names_its_extra() -> None:
    assert {entry.value.partition(".")[0] for entry in entry_points(group=GROUP)} <= set(EXTRAS)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help_of_every_subcommand(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    assert f"paternoster {name}" in capsys.readouterr().out


def test_help_lists_all_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from paternoster_contract.cli.command import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print('heavy:', sorted({'torch', 'fastapi', 'kopf', 'kubernetes', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in SUBCOMMANDS)
    assert done.stdout.rstrip().endswith("heavy: []")


@pytest.mark.parametrize(
    ("module", "heavy"),
    [("paternoster_engine.server.process", "torch"), ("paternoster_operator.local.client", "aiohttp")],
)
def test_who_must_be_quick_does_without(module: str, heavy: str) -> None:
    """An engine listens before torch is there: it takes seconds, in which probes are answered."""
    code = f"import sys, {module}; print({heavy!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip() == "False"


def test_nothing_that_takes_time_comes_before_the_handler_of_sigterm() -> None:
    code = (
        "import sys; before = set(sys.modules); import paternoster_contract.cli.command\n"
        "new = set(sys.modules) - before\n"
        "print('slow:', sorted({'argparse', 'asyncio', 'importlib.metadata', 'pydantic'} & new))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("slow: []")


def test_a_missing_extra_is_named() -> None:
    entry = EntryPoint("serve", "paternoster_engine.commands.serve", GROUP)
    message = missing_extra(entry, ModuleNotFoundError("No module named 'torch'", name="torch"))
    assert "'torch'" in message
    assert "paternoster[engine]" in message


@pytest.mark.parametrize(("module", "extra"), [("torch", "engine"), ("plotly.offline", "load"), ("aiohttp", "load")])
def test_a_benchmark_without_its_modules_names_the_extra_that_brings_them(module: str, extra: str) -> None:
    entry = EntryPoint("bench", "paternoster_engine.commands.bench", GROUP)
    assert f"paternoster[{extra}]" in missing_extra(entry, ModuleNotFoundError(name=module))


def run_without_plotly(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``paternoster`` in a new process, where plotly cannot be imported."""
    code = f"import sys; sys.modules['plotly'] = None\nfrom {main.__module__} import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


def test_a_benchmark_without_plotly_names_the_extra_load() -> None:
    done = run_without_plotly("bench", "offline", "--num-prompts", "1")
    assert done.returncode == 1
    assert "pip install 'paternoster[load]'" in done.stderr


def test_a_report_without_its_extra_is_refused_before_the_simulation(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "examples" / "llama-3-8b.yaml"
    done = run_without_plotly("simulate", "-f", str(file), "--duration", "60", "--report", str(tmp_path / "page.html"))
    assert done.returncode == 1
    assert "'plotly" in done.stderr
    assert done.stdout == "", "nothing was simulated"


def test_an_unknown_subcommand_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["levitate"])
    assert stopped.value.code == 2
    assert "levitate" in capsys.readouterr().err


def test_the_console_script_is_installed() -> None:
    script = Path(sys.executable).parent / "paternoster"
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("paternoster ")
