"""The release before this one: its chart's archive, and images with its operator and gateway."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from paternoster_e2e.artifacts.images import build_image
from paternoster_e2e.cluster.cluster import ROOT

FOLDER = ROOT / "e2e" / "install" / "previous"
CHART = FOLDER / "paternoster-0.1.0.tgz"
WHEEL = FOLDER / "paternoster-0.1.0-py3-none-any.whl"
TAG = "previous"
DOCKERFILE = """\
ARG CURRENT
FROM ${CURRENT}
USER 0:0
COPY *.whl /tmp/
RUN /opt/paternoster/bin/pip install --no-index --no-deps --force-reinstall /tmp/*.whl && rm /tmp/*.whl
USER 65532:65532
"""
"""Packages of today, with the project's own of then in place of today's."""


def previous_images(today: Iterable[Path], folder: Path) -> list[Path]:
    """Archives of both images in ``folder``, tagged :data:`TAG`, from the archives of ``today``'s."""
    archives = []
    for name, current in ((path.name.partition("-")[0], path) for path in today):
        if name not in ("operator", "gateway"):
            continue
        with tempfile.TemporaryDirectory() as context:
            (Path(context) / WHEEL.name).write_bytes(WHEEL.read_bytes())
            dockerfile = Path(context) / "Dockerfile"
            dockerfile.write_text(DOCKERFILE)
            archive = folder / f"{name}-{TAG}.tar"
            arguments = {"CURRENT": f"oci-archive:{current}"}
            build_image(f"paternoster-{name}", dockerfile, Path(context), archive, arguments, tag=TAG)
            archives.append(archive)
    return archives
