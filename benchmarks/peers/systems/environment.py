"""Where peers are kept, and a virtual environment of pinned packages for each."""

import os
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements"


class SetUpError(RuntimeError):
    """A peer that cannot be set up here; the text names the step that failed, with its output."""


def peers_folder() -> Path:
    """``peers`` in the project's cache, made if need be."""
    cache = os.environ.get("PATERNOSTER_CACHE") or str(
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paternoster"
    )
    folder = Path(cache).absolute() / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(step: str, *command: str | Path, env: dict[str, str] | None = None) -> None:
    """Carry out one step of a set-up, its output on this terminal; raises :class:`SetUpError`.

    Outside of any checkout: uv would hold a peer's packages to the constraints of a project that it stands in.
    """
    print(f"set-up: {step}", file=sys.stderr, flush=True)
    words, here = [str(part) for part in command], peers_folder()
    done = subprocess.run(words, cwd=here, env={**os.environ, **(env or {})}, stdout=sys.stderr)
    if done.returncode:
        raise SetUpError(f"{step}: exit status {done.returncode}")


@dataclass(frozen=True, slots=True)
class Environment:
    """The venv made from ``requirements/<name>.txt``, which pins every package."""

    name: str
    instead: str = ""
    """Another version of the package ``name`` than the file pins."""

    @property
    def folder(self) -> Path:
        return peers_folder() / "-".join(filter(None, (self.name, self.instead))) / "venv"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def pins(self) -> dict[str, str]:
        """The version of each package."""
        lines = (REQUIREMENTS / f"{self.name}.txt").read_text().splitlines()
        pins = dict(line.split("==", 1) for line in lines if "==" in line)
        return {**pins, self.name: self.instead} if self.instead else pins

    def version(self, package: str) -> str:
        """Pinned version; raises :class:`KeyError` for a package that is not."""
        return self.pins[package]

    def set_up(self) -> None:
        """Make it, unless it is there with these very pins."""
        stamp = self.folder / ".stamp"
        text = "".join(f"{package}=={version}\n" for package, version in self.pins.items())
        wanted = sha256(text.encode()).hexdigest()
        if stamp.is_file() and stamp.read_text() == wanted:
            return
        uv, requirements = package_installer(), self.folder.parent / "requirements.txt"
        requirements.parent.mkdir(exist_ok=True)
        requirements.write_text(text)
        cache = str(peers_folder().parent / "packages")
        packages = {"UV_CACHE_DIR": cache, "UV_HTTP_TIMEOUT": "300", "UV_COMPILE_BYTECODE_TIMEOUT": "600"}
        run(f"{self.name}: a venv", uv, "venv", "--clear", "--python", sys.executable, self.folder, env=packages)
        # Without dependencies: the pins are complete, and vLLM's own ask for builds that the registry does not have.
        # With bytecode: a start of one that may not write it would compile thousands of files each time.
        flags: list[str | Path] = ["--no-deps", "--compile-bytecode", "--python", self.python, "-r", requirements]
        run(f"{self.name}: packages", uv, "pip", "install", *flags, env=packages)
        stamp.write_text(wanted)


def package_installer() -> Path:
    """The uv that ``scripts/setup`` fetched."""
    found = sorted(peers_folder().parent.glob("uv-*/bin/uv"))
    if not found:
        raise SetUpError("uv: is not in the cache: run 'make setup' first")
    return found[-1]
