"""The project's images as archives, without a registry: a Debian base, and the project's own Dockerfiles on it."""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from paternoster_e2e.artifacts.cache import alone, cache_folder, digest
from paternoster_e2e.artifacts.progress import progress
from paternoster_e2e.cluster.cluster import ROOT
from paternoster_e2e.cluster.node import PAUSE_IMAGE

DEBIAN = "bookworm"
BASE_PYTHON = "3.11"
"""The Python of that Debian."""
BASE_PACKAGES = "python3,python3-venv,ca-certificates,libstdc++6"
BASE_IMAGE = "localhost/paternoster-base:e2e"
BORROWING = Path(__file__).with_name("engine.Dockerfile")
LIBRARY = "from paternoster_kernels.cpu.library import load_library; print(getattr(load_library(), '_name', ''))"
"""Prints where this machine's native CPU kernels are, made if need be; nothing where there are none."""
MAX_ARCHIVES = 8
"""Newest archives of an image that stay in the cache: checkouts share it, and none removes what another one loads."""
PACKAGES = ("common", "operator", "gateway", "batch", "engine", "kernels", "load", "simulator")
"""Folders that an image is built from."""


def version() -> str:
    """The project's version, which is the images' tag."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


@alone("images")
def ensure_images() -> list[Path]:
    """Archives of the pause, operator, gateway and engine images; only what changed is built again."""
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    stages: list[tuple[str, Callable[[str], Path]]] = [
        ("pause", lambda base: _pause(folder, base)),
        ("operator", lambda base: _from_dockerfile(folder, base, "operator")),
        ("gateway", lambda base: _from_dockerfile(folder, base, "gateway")),
        ("engine", lambda base: _borrowing_engine(folder, base)),
    ]
    archives = []
    # Beside the bar of the programs, which are built at the same time.
    with progress("images", len(stages) + 1, "image", line=1) as bar:
        bar.set_postfix_str("base")
        base = build_base(folder)
        for name, stage in stages:
            bar.set_postfix_str(name, refresh=False)
            bar.update()
            archives.append(stage(base))
        bar.update()
    return archives


def build_base(folder: Path) -> str:
    """A Debian with Python in the image store; returns its key."""
    key = digest([], DEBIAN, BASE_PACKAGES)
    archive = folder / f"base-{key}.tar"
    if not archive.exists():
        partial = archive.with_suffix(".partial")
        excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")]
        _run("mmdebstrap", "--quiet", "--variant=essential", "--mode=root", "--format=tar", *excluded,
             f"--include={BASE_PACKAGES}", DEBIAN, str(partial))  # fmt: skip
        partial.replace(archive)
    if subprocess.run(_buildah("inspect", "--type=image", f"{BASE_IMAGE}-{key}"), capture_output=True).returncode != 0:
        container = _out(*_buildah("from", "scratch"))
        _run(*_buildah("add", "--quiet", container, str(archive), "/"))
        _run(*_buildah("config", "--env=PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container))
        _run(*_buildah("commit", "--quiet", "--rm", container, f"{BASE_IMAGE}-{key}"))
    return f"{BASE_IMAGE}-{key}"


def _pause(folder: Path, base: str) -> Path:
    """What holds a pod's namespaces: something that sleeps."""
    archive = folder / f"pause-{base.rpartition('-')[2]}.tar"
    if not archive.exists():
        container = _out(*_buildah("from", base))
        _run(*_buildah("config", '--entrypoint=["sleep", "infinity"]', container))
        _run(*_buildah("commit", "--quiet", "--rm", container, PAUSE_IMAGE))
        _push(PAUSE_IMAGE, archive)
    return archive


def _from_dockerfile(folder: Path, base: str, name: str) -> Path:
    """An image of the project, as its users build it, but for base and the packages' origin."""
    dockerfile = ROOT / name / "Dockerfile"
    sources = [ROOT / "pyproject.toml", *_requirements(name), dockerfile]
    sources += [file for package in PACKAGES for file in (ROOT / package).rglob("*") if _is_source(file)]
    archive = folder / f"{name}-{digest(sources, base)}.tar"
    if not archive.exists():
        wheels = _wheels(name)
        arguments = {"BASE": base, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
        build_image(f"paternoster-{name}", dockerfile, ROOT, archive, arguments, f"--volume={wheels}:/wheels:ro")
    return archive


def _borrowing_engine(folder: Path, base: str) -> Path:
    command = Path(sys.executable).with_name("paternoster")
    context = folder / "engine"
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir()
    # An interpreter of its own, as torch comes with the kernels.
    library = _out(sys.executable, "-c", LIBRARY)
    if library:
        shutil.copy(library, context)
    archive = folder / f"engine-{digest([BORROWING, *context.iterdir()], base, str(command), version())}.tar"
    if not archive.exists():
        build_image("paternoster-engine", BORROWING, context, archive, {"BASE": base, "COMMAND": str(command)})
    return archive


def _wheels(name: str) -> Path:
    """A folder with the wheels that an image needs on the base's Python; downloaded once for each list of them."""
    lists = _requirements(name)
    folder = cache_folder() / "wheels" / f"{name}-{digest(lists, BASE_PYTHON)}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        pip = next(cache_folder().glob("uv-*/bin/python"))
        platforms = [f"--platform={name}_x86_64" for name in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
        for file in lists:
            _run(str(pip), "-m", "pip", "download", "--quiet", "--dest", str(partial), "--require-hashes", "--no-deps",
                 "--only-binary=:all:", f"--python-version={BASE_PYTHON}", *platforms,
                 f"--requirement={file}")  # fmt: skip
        partial.replace(folder)
    return folder


def _requirements(name: str) -> list[Path]:
    """What one image is made of, and what builds the project in it."""
    return [ROOT / "requirements" / f"{each}.txt" for each in (name, "build")]


def build_image(
    name: str,
    dockerfile: Path,
    context: Path,
    archive: Path,
    arguments: Mapping[str, str],
    *more: str,
    tag: str | None = None,
) -> None:
    """Build ``name`` with the project's version as its tag, or with ``tag``, and write it to ``archive``."""
    # The full name: it is what the node looks for when a manifest says name:tag.
    image = f"docker.io/library/{name}:{tag or version()}"
    given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
    _run(
        *_buildah(
            "build",
            "--quiet",
            "--isolation=chroot",
            "--layers",
            f"--file={dockerfile}",
            f"--tag={image}",
            *given,
            *more,
            str(context),
        )
    )
    _push(image, archive)


def _push(image: str, archive: Path) -> None:
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    _run(*_buildah("push", "--quiet", image, f"oci-archive:{partial}:{image}"))
    partial.replace(archive)
    archives = archive.parent.glob(f"{archive.name.partition('-')[0]}-*.tar")
    for older in sorted(archives, key=lambda file: file.stat().st_mtime)[:-MAX_ARCHIVES]:
        older.unlink()


def _buildah(*words: str) -> list[str]:
    """buildah over a store of its own, beside the archives."""
    store = cache_folder() / "buildah"
    return ["buildah", f"--root={store / 'storage'}", f"--runroot={store / 'run'}", *words]


def _is_source(file: Path) -> bool:
    return file.is_file() and "__pycache__" not in file.parts


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)}: exit status {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )


def _out(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
