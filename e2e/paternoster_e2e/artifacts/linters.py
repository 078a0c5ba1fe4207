"""The programs that judge what the chart renders: kube-score from its Go module, checkov from PyPI."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from paternoster_e2e.artifacts.cache import alone, cache_folder, digest
from paternoster_e2e.artifacts.components import MissingComponent

PINNED = Path(__file__).resolve().parents[2] / "linters"
KUBE_SCORE = "github.com/zegl/kube-score/cmd/kube-score"
KUBERNETES = "v1.30"
"""The oldest that the chart takes; kube-score judges by it which API versions are fine."""
PASSED = 10
"""kube-score's best grade; it calls 1 critical and 5 a warning."""


class Finding(NamedTuple):
    """Something that a linter would have otherwise."""

    tool: str
    check: str
    """The check's name and, where it can say more than one thing, its message."""
    object: str
    """Kind and name."""


@dataclass(frozen=True)
class Linters:
    """Both programs; they need no network."""

    kube_score: Path
    checkov: Path

    def findings(self, documents: Sequence[dict[str, Any]], folder: Path) -> set[Finding]:
        """What both say about ``documents``, which are written below ``folder``."""
        file = folder / "manifests.yaml"
        file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
        return {*self._by_kube_score(file), *self._by_checkov(file, folder)}

    def _by_kube_score(self, file: Path) -> Iterator[Finding]:
        words = ["score", "--output-format=json", f"--kubernetes-version={KUBERNETES}"]
        for judged in _json([self.kube_score, *words, file], {**os.environ}):
            name = f"{judged['type_meta']['kind']}/{judged['object_meta']['name']}"
            for check in judged["checks"]:
                if check["skipped"] or check["grade"] >= PASSED:
                    continue
                for comment in check["comments"] or [{"summary": ""}]:
                    yield Finding("kube-score", f"{check['check']['id']}: {comment['summary']}", name)

    def _by_checkov(self, file: Path, folder: Path) -> Iterator[Finding]:
        words = ["--framework=kubernetes", "--quiet", "--compact", "--skip-download", "--output=json"]
        # A home of its own: no settings of the user, and no key for its vendor's service.
        output = _json([self.checkov, f"--file={file}", *words], {"PATH": os.environ["PATH"], "HOME": str(folder)})
        # Some checks name a pod by its owner's name and all labels.
        for failed in output["results"]["failed_checks"]:
            kind, _, name = re.sub(r"\.app\.kubernetes\.io/.*", "", failed["resource"]).partition(".")
            yield Finding(
                "checkov", f"{failed['check_id']}: {failed['check_name']}", f"{kind}/{name.rpartition('.')[2]}"
            )


@alone("linters")
def ensure_linters() -> Linters:
    """Build or install what is not there yet, by its pinned version. Raises :class:`MissingComponent`."""
    sums = [PINNED / "go.mod", PINNED / "go.sum"]
    kube_score = cache_folder() / f"kube-score-{digest(sums)}"
    requirements = PINNED / "checkov.txt"
    venv = cache_folder() / f"checkov-{digest([requirements])}"
    if not kube_score.exists():
        go = shutil.which("go")
        if go is None:
            raise MissingComponent("Go is needed once, to build kube-score: install it and put `go` on PATH")
        print("building kube-score", flush=True)
        partial = kube_score.with_suffix(".partial")
        env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
        _run([go, "build", "-trimpath", "-o", str(partial), KUBE_SCORE], PINNED, env)
        partial.replace(kube_score)
    if not (venv / "ready").exists():
        print("installing checkov", flush=True)
        uv = next(cache_folder().glob("uv-*/bin/uv"))
        env = {**os.environ, "UV_CACHE_DIR": str(cache_folder() / "packages"), "UV_PYTHON_DOWNLOADS": "never"}
        _run([str(uv), "venv", "--quiet", "--clear", "--python=3.11", str(venv)], PINNED, env)
        words = ["pip", "install", "--quiet", "--no-deps", f"--python={venv}", f"--requirement={requirements}"]
        _run([str(uv), *words], PINNED, env)
        (venv / "ready").touch()
    return Linters(kube_score, venv / "bin" / "checkov")


def _run(command: Sequence[str], folder: Path, env: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise MissingComponent(f"{' '.join(command)}: exit status {done.returncode}:\n{done.stderr[-2000:]}")


def _json(command: Sequence[str | Path], env: dict[str, str]) -> Any:
    """What a linter prints; it ends with 1 when it has found something."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command[0]}: exit status {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)
