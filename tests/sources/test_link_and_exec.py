"""A fetched model for a program that does not know the cache: ``paternoster pull --link`` and ``--exec``."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.sources.loopback_hub import LoopbackHub
from tests.sources.model_files import model_files

from paternoster_sources.command import link_folder
from paternoster_sources.storage.cache import DownloadCache

PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))
GGUF = "tiny-Q8_0.gguf"
HOLD = "import os, sys; print(sys.argv[1:], os.getpid(), flush=True); sys.stdin.read()"


def pull(address: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [PATERNOSTER, "pull", address, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("address", "file"), [("hf://org/tiny", "model.safetensors"), (f"hf://org/quantized/{GGUF}", GGUF)]
)
def test_the_link_leads_to_the_folder_of_the_files(hub: LoopbackHub, tmp_path: Path, address: str, file: str) -> None:
    hub.add("org/tiny", model_files())
    hub.add("org/quantized", {GGUF: b"GGUF" * 500})
    link = tmp_path / "link"
    link.symlink_to("/nowhere")
    done = pull(address, "--link", str(link))
    assert (done.returncode, done.stderr) == (0, "")
    assert (link / file).is_file()
    path = Path(done.stdout.strip())
    assert link.resolve() == (path if path.is_dir() else path.parent)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "models"]


def test_a_folder_or_file_is_not_replaced_by_a_link(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.add("org/tiny", model_files())
    (tmp_path / "link").write_text("mine")
    done = pull("hf://org/tiny", "--link", str(tmp_path / "link"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"paternoster pull: --link is '{tmp_path}/link': is there, and no symbolic link\n"
    assert (tmp_path / "link").read_text() == "mine"


def test_what_a_killed_pull_left_is_in_no_ones_way(hub: LoopbackHub, tmp_path: Path) -> None:
    """In a container each start has the number of the process that was killed."""
    hub.add("org/tiny", model_files())
    code = "import os, sys; from paternoster_sources import command; os.replace = lambda *_: os.kill(os.getpid(), 9)\n"
    code += "command.link_folder(command.Path(sys.argv[1]), command.Path('/'))"
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "link")], check=False, timeout=60)
    assert killed.returncode == -9
    assert [each.name for each in tmp_path.iterdir()] == [".link.new"]
    for _ in range(2):
        done = pull("hf://org/tiny", "--link", str(tmp_path / "link"))
        assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "link" / "model.safetensors").is_file()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "models"]


def test_one_of_many_links_is_left(tmp_path: Path) -> None:
    folders = [tmp_path / f"model-{number}" for number in range(4)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda folder: link_folder(tmp_path / "link", folder), folders * 50))
    assert (tmp_path / "link").resolve() in folders
    assert not (tmp_path / ".link.new").is_symlink()


def test_the_program_has_the_model_until_it_ends(hub: LoopbackHub, cache: DownloadCache, tmp_path: Path) -> None:
    hub.add("org/tiny", model_files())
    command = [PATERNOSTER, "pull", "hf://org/tiny", "--exec", sys.executable, "-c", HOLD, "--link", "x"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        assert process.stdout.readline() == f"['--link', 'x'] {process.pid}\n"
        key = path.relative_to(cache.folder).parts[0]
        assert not cache.evict_model(key)
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert cache.evict_model(key)
    assert not path.exists()


def test_a_program_that_is_not_there_is_named(hub: LoopbackHub) -> None:
    hub.add("org/tiny", model_files())
    done = pull("hf://org/tiny", "--exec", "/no/such/program", "--flag")
    assert done.returncode == 2
    assert done.stderr == f"paternoster pull: --exec is '/no/such/program': {os.strerror(2)}\n"
