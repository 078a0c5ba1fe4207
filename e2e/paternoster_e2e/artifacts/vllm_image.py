"""An image of a vLLM that a node lends to its containers: the program's name, and a library that it needs."""

import shutil
import tempfile
from pathlib import Path

from paternoster_e2e.artifacts.cache import alone, cache_folder, digest
from paternoster_e2e.artifacts.components import MissingComponent
from paternoster_e2e.artifacts.images import build_base, build_image

DOCKERFILE = Path(__file__).with_name("vllm") / "Dockerfile"
NAME, TAG = "vllm", "e2e"
IMAGE = f"docker.io/library/{NAME}:{TAG}"
NUMA = Path("/usr/lib/x86_64-linux-gnu/libnuma.so.1")
"""vLLM's operations for CPUs need it from their surroundings, and the base has none."""


@alone("images")
def ensure_vllm_image(program: Path) -> Path:
    """The archive of :data:`IMAGE` with ``vllm`` as a link to ``program``; raises :class:`MissingComponent`."""
    if not NUMA.exists():
        raise MissingComponent(f"vLLM's image: there is no {NUMA}: install libnuma1")
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    base = build_base(folder)
    archive = folder / f"vllm-{digest([DOCKERFILE, NUMA], base, str(program))}.tar"
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as context:
            shutil.copy(NUMA, context)
            build_image(NAME, DOCKERFILE, Path(context), archive, {"BASE": base, "PROGRAM": str(program)}, tag=TAG)
    return archive
