"""The programs of a cluster: Kubernetes, etcd, CoreDNS and Helm built from one Go module, the rest Debian packages."""

import math
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from paternoster_e2e.artifacts.cache import alone, cache_folder, digest
from paternoster_e2e.artifacts.progress import progress

KUBERNETES_VERSION = "v1.35.4"
"""Version in go.mod; the API server reports it."""
BUILD_CPU_SECONDS = 750
"""What the build takes with nothing cached, as measured on a Xeon (family 6, model 207); for an estimate beforehand."""
PROGRAMS = (
    "coredns", "etcd", "helm", "kube-apiserver", "kube-controller-manager", "kube-netpol", "kube-proxy",
    "kube-scheduler", "kubectl", "kubelet",
)  # fmt: skip
DEBIAN_PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "iptables": "iptables",
    "nft": "nftables",
    "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",
    "buildah": "buildah",
    "promtool": "prometheus",
    "docker-registry": "docker-registry",
}
"""A program that is looked for, and the package that brings it."""

MODULE = Path(__file__).resolve().parents[2] / "cluster"
CONTAINERD = MODULE.with_name("containerd")
CONTAINERD_CHOICE = "CONTAINERD"
"""In the environment: 2 for containerd 2, which mounts images as volumes, in place of Debian's 1.6."""


class MissingComponent(Exception):
    """Something a cluster needs is not there and cannot be brought; the text says what and why."""


@alone("programs")
def ensure_programs() -> Path:
    """Folder with every name of :data:`PROGRAMS`; builds them the first time. Raises :class:`MissingComponent`."""
    given = os.environ.get("KUBEBUILDER_ASSETS")
    sources = [*MODULE.glob("go.*"), *MODULE.rglob("*.go")]
    folder = cache_folder() / f"kube-{KUBERNETES_VERSION}-{digest(sources)}"
    binary = folder / "kube"
    if not binary.exists():
        _build(binary)
    for name in PROGRAMS:
        link = folder / name
        own = Path(given) / name if given and (Path(given) / name).exists() else Path("kube")
        if not link.is_symlink() or Path(os.readlink(link)) != own:
            link.unlink(missing_ok=True)
            link.symlink_to(own)
    return folder


def ensure_debian() -> None:
    """Install what is missing of :data:`DEBIAN_PACKAGES`; needs root. Raises :class:`MissingComponent`."""
    missing = sorted({package for program, package in DEBIAN_PACKAGES.items() if shutil.which(program) is None})
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MissingComponent(f"these Debian packages are missing: {' '.join(missing)}")
    print(f"installing {' '.join(missing)}", flush=True)
    # RUNLEVEL: no service of a package is to start, because the cluster runs its own.
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    try:
        for words in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
            command = ["apt-get", "-o", "Acquire::Retries=3", *words]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
    except subprocess.CalledProcessError as error:
        raise MissingComponent(f"cannot install {' '.join(missing)}: exit status {error.returncode}") from error


@alone("containerd")
def ensure_containerd() -> None:
    """Put the containerd that is chosen on PATH; builds it the first time. Raises :class:`MissingComponent`."""
    choice = os.environ.get(CONTAINERD_CHOICE, "")
    if choice == "":
        return
    if choice != "2":
        raise MissingComponent(f"${CONTAINERD_CHOICE} is {choice!r}: must be 2, or unset for Debian's")
    folder = cache_folder() / f"containerd-{digest(CONTAINERD.glob('go.*'))}"
    if not folder.exists():
        print("building containerd 2, once", flush=True)
        partial = folder.with_suffix(".partial")
        go = _find_go("containerd")
        command = [go, "build", "-v", "-trimpath", "-ldflags=-s -w", "-o", f"{partial}/", "tool"]
        _go("go build", _packages(go, CONTAINERD, "tool"), "package", command, lambda _: True, CONTAINERD)
        partial.replace(folder)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


def _find_go(what: str) -> str:
    go = shutil.which("go")
    if go is None:
        raise MissingComponent(f"Go is needed once, to build {what}: install it and put `go` on PATH")
    return go


def _packages(go: str, module: Path, pattern: str) -> int:
    """How many are compiled for ``pattern``."""
    command = [go, "list", "-deps", pattern]
    done = subprocess.run(command, cwd=module, env=_go_environment(), check=True, capture_output=True, text=True)
    return len(done.stdout.splitlines())


def _build(binary: Path) -> None:
    go = _find_go("Kubernetes")
    binary.parent.mkdir(parents=True, exist_ok=True)
    cores = len(os.sched_getaffinity(0))
    minutes = math.ceil(BUILD_CPU_SECONDS / 60 / cores)
    print(
        f"building Kubernetes {KUBERNETES_VERSION}, etcd, CoreDNS and Helm, once: about {minutes} minutes on {cores} "
        "cores that do nothing else",
        flush=True,
    )
    modules = (MODULE / "go.mod").read_text().count("\n\t")
    # One JSON object a module, each ending with a brace on a line of its own.
    _go("go mod download", modules, "module", [go, "mod", "download", "-json"], lambda line: line.startswith("}"))
    version = f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}"
    partial = binary.with_suffix(".partial")
    command = [go, "build", "-v", "-trimpath", "-ldflags", f"-s -w {version}", "-o", str(partial), "."]
    _go("go build", _packages(go, MODULE, "."), "package", command, lambda _: True)
    partial.replace(binary)


def _go(
    what: str, total: int, unit: str, command: Sequence[str], counts: Callable[[str], bool], module: Path = MODULE
) -> None:
    """Run a command of Go; the lines that count are its progress. Raises :class:`MissingComponent`."""
    with (
        progress(what, total, unit) as bar,
        subprocess.Popen(
            command, cwd=module, env=_go_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as running,
    ):
        assert running.stdout is not None
        output = []
        for line in running.stdout:
            output.append(line)
            bar.update(counts(line))
    if running.returncode != 0:
        raise MissingComponent(f"{what} failed:\n" + "".join(output[-20:]))


def _go_environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
