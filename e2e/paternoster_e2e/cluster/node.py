"""A node: containerd and kubelet."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from paternoster_e2e.cluster.network import NODE_ADDRESS, Place
from paternoster_e2e.cluster.pki import Pki
from paternoster_e2e.cluster.processes import Service

PAUSE_IMAGE = "localhost/pause:e2e"
PODS_WEIGHT = 4
"""Processes beside a node, such as API servers and tests, that its pods together weigh as much as."""
CONTAINERD = """\
version = 2
root = "{root}"
state = "{state}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  stream_server_address = "127.0.0.1"
  # A machine without CAP_SYS_RESOURCE, and one without hugetlb cgroups, can run it so.
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cni}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{spec}"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{runc}"
"""


class Node:
    """containerd and kubelet, each with what it writes below ``folder``.

    ``mounts`` (path in a container -> path here) are given to every container, read-only.
    """

    def __init__(self, bin_folder: Path, folder: Path, pki: Pki, mounts: Mapping[str, Path], place: Place) -> None:
        self.name = place.name
        self._place = place
        # Of its own each time that a test adds the second node.
        self._folder = Path(tempfile.mkdtemp(prefix=f"{place.name}-", dir=folder))
        self._socket = self._folder / "containerd.sock"
        self._kubectl = [str(bin_folder / "kubectl"), f"--kubeconfig={pki.kubeconfig('admin')}"]
        self._cgroup = f"{folder.name}-{place.name}"
        logs = folder / "logs"
        self.containerd = Service(
            "containerd", ["containerd", "-c", self._write_containerd(mounts)], logs / f"containerd-{place.name}.log"
        )
        # fmt: off
        self.kubelet = Service(
            "kubelet",
            [
                bin_folder / "kubelet", f"--config={self._write_kubelet(pki)}",
                f"--kubeconfig={pki.kubeconfig(place.name)}", f"--root-dir={self._folder / 'kubelet'}",
                f"--cert-dir={self._folder / 'kubelet-pki'}", f"--hostname-override={place.name}",
                f"--node-ip={place.address}", "--v=1",
            ],
            logs / f"kubelet-{place.name}.log",
        )
        # fmt: on

    def start(self, images: Iterable[Path]) -> None:
        """Returns when the node is ready; ``images`` are archives to import."""
        add_cgroups(self._cgroup)
        self.containerd.start()
        self.containerd.until(lambda: self._ctr("version").returncode == 0)
        for image in images:
            self.import_image(image)
        self.kubelet.start()
        self.kubelet.until(self._ready)

    def import_image(self, archive: Path) -> None:
        """Make the images of an OCI or docker archive known to the node."""
        done = self._ctr("images", "import", str(archive))
        if done.returncode != 0:
            raise RuntimeError(f"cannot import {archive}: {done.stderr}")

    def mirror_image(self, image: str, repository: str) -> str:
        """Have the image in ``repository``, too, by its digest alone, as if pulled from there; returns the digest."""
        listed = self._ctr("images", "list", f"name=={image}").stdout.splitlines()
        digest = next(word for word in listed[-1].split() if word.startswith("sha256:"))
        done = self._ctr("images", "tag", "--force", image, f"{repository}@{digest}")
        if done.returncode != 0:
            raise RuntimeError(f"cannot name {image} {repository}@{digest}: {done.stderr}")
        return digest

    def stop(self) -> None:
        """The containers end with the namespaces; their cgroups are taken away here."""
        self.kubelet.stop()
        listed = self._ctr("tasks", "list", "--quiet").stdout.split()
        for task in listed:
            self._ctr("tasks", "kill", "--signal", "SIGKILL", task)
        self.containerd.stop()
        unmount_below(self._folder)
        remove_cgroups(self._cgroup)

    def _ready(self) -> bool:
        words = ["get", "node", self.name, "--output=jsonpath={.status.conditions[?(@.type=='Ready')].status}"]
        output: str = subprocess.run([*self._kubectl, *words], capture_output=True, text=True).stdout
        return output == "True"

    def _ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["ctr", "--address", str(self._socket), "--namespace", "k8s.io", *words]
        return subprocess.run(command, capture_output=True, text=True)

    def _write_containerd(self, mounts: Mapping[str, Path]) -> Path:
        cni = self._folder / "cni"
        cni.mkdir()
        # Each pod has its own link to the node: a packet between two pods passes the node's rules both ways.
        ptp = {
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": str(self._folder / "cni-addresses"),
                "ranges": [[{"subnet": self._place.pods}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        (cni / "10-e2e.conflist").write_text(json.dumps({"cniVersion": "0.4.0", "name": "e2e", "plugins": [ptp]}))
        spec = json.loads(subprocess.run(["ctr", "oci", "spec"], check=True, capture_output=True).stdout)
        spec["mounts"] += [
            {"destination": inside, "type": "bind", "source": str(here), "options": ["rbind", "ro"]}
            for inside, here in mounts.items()
        ]
        base = self._folder / "base-spec.json"
        base.write_text(json.dumps(spec))
        file = self._folder / "containerd.toml"
        file.write_text(
            CONTAINERD.format(
                root=self._folder / "containerd-root",
                state=self._folder / "containerd",
                socket=self._socket,
                pause=PAUSE_IMAGE,
                cni=cni,
                spec=base,
                runc="/usr/sbin/runc",
            )
        )
        return file

    def _write_kubelet(self, pki: Pki) -> Path:
        low = dict.fromkeys(("imagefs.available", "nodefs.available", "nodefs.inodesFree", "imagefs.inodesFree"), "1%")
        document = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self._place.address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki.ca)},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            # A kubelet takes away the groups of pods it does not know: below a root of its own it meets no other's.
            "cgroupRoot": f"/{self._cgroup}",
            # The same with their logs, which all kubelets of a machine keep in one folder by default.
            "podLogsDir": str(self._folder / "pod-logs"),
            "failCgroupV1": False,
            "failSwapOn": False,
            "clusterDNS": [NODE_ADDRESS],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            # Of no use here, and two kubelets of a machine would want one port for it.
            "healthzPort": 0,
            "resolvConf": "",
            "evictionHard": {**low, "memory.available": "50Mi"},
            # Images come from no registry: one that a kubelet short of disk takes away would not come back.
            "imageGCHighThresholdPercent": 100,
            "imageMinimumGCAge": "24h",
            "serializeImagePulls": False,
            "registerNode": True,
        }
        if self._place.restart_seconds is not None:
            document["crashLoopBackOff"] = {"maxContainerRestartPeriod": f"{self._place.restart_seconds}s"}
        file = self._folder / "kubelet.json"
        file.write_text(json.dumps(document))
        return file


def unmount_below(folder: Path) -> None:
    """Let go of the file systems of containers and volumes."""
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for point in sorted((point for point in points if Path(point).is_relative_to(folder)), reverse=True):
        subprocess.run(["umount", "--lazy", point], check=False)


def add_cgroups(name: str) -> None:
    """A group of that name in every hierarchy, or in the only one where cgroups are unified.

    A new group gets as much processor time as one process beside it, and all pods of the node are in it.
    """
    for hierarchy in _hierarchies():
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        for file, default in (("cpu.shares", 1024), ("cpu.weight", 100)):
            if (group / file).exists():
                (group / file).write_text(str(default * PODS_WEIGHT))
        if (hierarchy / "cpuset.cpus").exists():
            # Of the old kind, a new group has no cores and no memory until it is given some.
            for file in ("cpuset.cpus", "cpuset.mems"):
                (hierarchy / name / file).write_text((hierarchy / file).read_text())


def remove_cgroups(name: str) -> None:
    """Take away the empty groups that pods leave behind."""
    for hierarchy in _hierarchies():
        for folder, _, _ in os.walk(hierarchy / name, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def _hierarchies() -> list[Path]:
    root = Path("/sys/fs/cgroup")
    return [root] if (root / "cgroup.controllers").exists() else [path for path in root.iterdir() if path.is_dir()]
