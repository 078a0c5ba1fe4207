"""A cluster from start to end: of one node, and of two where a test adds one."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from paternoster_e2e.cluster import network
from paternoster_e2e.cluster.control_plane import ControlPlane
from paternoster_e2e.cluster.network import FIRST, SECOND, Place
from paternoster_e2e.cluster.node import Node
from paternoster_e2e.cluster.pod_network import PodNetwork
from paternoster_e2e.cluster.processes import Service

ROOT = Path(__file__).resolve().parents[3]
"""The checkout."""


class Cluster:
    """Control plane, and a node where ``images`` are given; everything it writes lies below ``folder``.

    ``extra`` gives more flags to a program of the control plane, by its name.
    """

    def __init__(
        self,
        bin_folder: Path,
        folder: Path,
        images: Iterable[Path] = (),
        extra: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.bin = bin_folder
        self.folder = folder
        self.images = list(images)
        self.plane = ControlPlane(bin_folder, folder, extra)
        self.kubeconfig = self.plane.pki.kubeconfig("admin")
        self._pods = PodNetwork(bin_folder, folder, self.plane.pki)
        self.node = self._build_node(FIRST) if self.images else None

    def start(self) -> None:
        if self.node is not None and ROOT.is_relative_to("/tmp"):
            # The engines borrow the checkout at its own path, and their pods have a /tmp of their own.
            raise RuntimeError(f"the checkout lies in {ROOT}: engines cannot run from below /tmp, so put it elsewhere")
        network.lay_out()
        self.plane.start()
        if self.node is not None:
            self._pods.start()
            self.node.start(self.images)

    def stop(self) -> None:
        if self.node is not None:
            self.node.stop()
            self._pods.stop()
        self.plane.stop()

    @contextmanager
    def second_node(self, images: Iterable[Path], lent: Mapping[str, Path] | None = None) -> Iterator[Node]:
        """One more node while the block runs, with those images alone; ``lent``: what containers see besides."""
        node = self._build_node(SECOND, lent)
        try:
            node.start(images)
            yield node
        finally:
            node.stop()
            words = ["kubectl", "delete", "node", SECOND.name, "--ignore-not-found"]
            subprocess.run(words, env=self.environment, check=False, capture_output=True)

    def _build_node(self, place: Place, lent: Mapping[str, Path] | None = None) -> Node:
        return Node(self.bin, self.folder, self.plane.pki, {**borrowed_packages(), **(lent or {})}, place)

    @property
    def environment(self) -> Mapping[str, str]:
        """For kubectl, Helm and anything else that is to meet this cluster."""
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        home = self.folder / "home"
        return {**os.environ, "PATH": path, "KUBECONFIG": str(self.kubeconfig), "HELM_CONFIG_HOME": str(home)}

    def services(self) -> list[Service]:
        plane = self.plane
        return [plane.etcd, plane.api_server, plane.controller_manager, plane.scheduler]


@contextmanager
def running_cluster(
    bin_folder: Path, images: Iterable[Path] = (), extra: Mapping[str, Sequence[str]] | None = None
) -> Iterator[Cluster]:
    """A cluster in a scratch folder, gone at the end; on SIGTERM too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(tempfile.mkdtemp(prefix="paternoster-e2e-"))
    cluster = Cluster(bin_folder, folder, images, extra)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        logs = os.environ.get("PATERNOSTER_E2E_LOGS")
        if logs:
            shutil.copytree(folder / "logs", logs, dirs_exist_ok=True)
        # Unpacked images are tens of thousands of files, and the last test's time limit runs on meanwhile.
        subprocess.run(["rm", "-rf", str(folder)], check=False)


def borrowed_packages() -> dict[str, Path]:
    """This interpreter, its packages and the checkout, at their own paths, for the engine's image.

    The engine's image has gigabytes of torch in it; here its containers borrow those that the tests run with.
    """
    places = {Path(sys.base_prefix), Path(sysconfig.get_path("purelib")), ROOT, Path(sys.prefix)}
    for place in sorted(places):
        if place.is_relative_to("/tmp"):
            raise RuntimeError(f"{place} is below /tmp, where pods have a volume of their own: run e2e from elsewhere")
    return {str(place): place for place in sorted(places)}
