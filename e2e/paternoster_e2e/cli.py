"""``paternoster-e2e``: a one-node Kubernetes cluster on this machine, and commands beside it."""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from paternoster_e2e.artifacts.cache import cache_folder
from paternoster_e2e.artifacts.components import MissingComponent, ensure_containerd, ensure_debian, ensure_programs
from paternoster_e2e.artifacts.images import ensure_images
from paternoster_e2e.artifacts.linters import ensure_linters
from paternoster_e2e.artifacts.llama_cpp_image import ensure_llama_cpp_image
from paternoster_e2e.cluster import network
from paternoster_e2e.cluster.cluster import ROOT, running_cluster
from paternoster_e2e.kubectl import Kubectl
from paternoster_e2e.publish import listening, publish_gateway

HINT = "paternoster-e2e run kubectl get nodes"
LISTENER = "PATERNOSTER_E2E_LISTENER"
"""Variable that names the descriptor of the socket outside the namespaces, for the process inside them."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="paternoster-e2e", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    up = commands.add_parser("up", help="start the cluster, and keep it until Ctrl-C; its gateway is on the loopback")
    up.add_argument("--detach", action="store_true", help="return when it is ready; `down` ends it")
    commands.add_parser("down", help="end the cluster that `up` started")
    commands.add_parser("components", help="bring everything a cluster needs, without starting one")
    run = commands.add_parser("run", help="run a command beside the cluster: its network, KUBECONFIG and PATH")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ...")
    test = commands.add_parser("test", help="run the suite on a cluster of its own, or on $KUBECONFIG's")
    test.add_argument("words", nargs=argparse.REMAINDER, metavar="PYTEST ARGUMENTS ...")
    commands.add_parser(
        "lint-chart", help="helm lint --strict, kube-score and checkov over the chart; needs no cluster"
    )
    commands.add_parser("package", help="write the chart's archive into dist/")
    isolate = commands.add_parser("isolate", help="run a command in namespaces where a cluster can be started")
    isolate.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ...")
    args = parser.parse_args()
    try:
        return int(globals()[f"_{args.command.replace('-', '_')}"](args))
    except MissingComponent as error:
        print(f"paternoster-e2e: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _components(_: argparse.Namespace) -> int:
    ensure_debian()
    # The images wait for the network and for disks while the programs are compiled.
    with ThreadPoolExecutor() as pool:
        programs, images = pool.submit(ensure_programs), pool.submit(ensure_images)
    print(programs.result())
    ensure_containerd()
    print(ensure_llama_cpp_image())
    for archive in images.result():
        print(archive)
    return 0


def _package(_: argparse.Namespace) -> int:
    helm = ensure_programs() / "helm"
    chart, target = ROOT / "charts" / "paternoster", ROOT / "dist"
    return subprocess.run([helm, "package", chart, f"--destination={target}"]).returncode


def _lint_chart(_: argparse.Namespace) -> NoReturn:
    """Replaces this process."""
    os.environ["PATH"] = f"{ensure_programs()}{os.pathsep}{os.environ['PATH']}"
    ensure_linters()
    tests = [str(ROOT / "e2e" / "chart" / name) for name in ("test_files.py", "test_lint.py")]
    pytest = str(Path(sys.executable).with_name("pytest"))
    os.execve(pytest, [pytest, "--quiet", *tests], {**os.environ, "REQUIRE_COMPONENTS": "1"})


def _test(args: argparse.Namespace) -> NoReturn:
    """Replaces this process. The components are brought first: a cluster's network reaches nothing outside."""
    _components(args)
    ensure_linters()
    os.environ["PATH"] = f"{ensure_programs()}{os.pathsep}{os.environ['PATH']}"
    words = [str(Path(sys.executable).with_name("pytest")), *(args.words or ["e2e"])]
    if "KUBECONFIG" in os.environ:
        os.execvp(words[0], words)
    _isolate(argparse.Namespace(words=words))


def _isolate(args: argparse.Namespace) -> NoReturn:
    """Replaces this process: what it starts ends with it."""
    os.execvpe(network.ISOLATE[0], [*network.ISOLATE, *args.words], {**os.environ, network.ISOLATED_VARIABLE: "1"})


def _up(args: argparse.Namespace) -> int:
    if network.isolated():
        return _keep_up(socket.socket(fileno=int(os.environ[LISTENER])))
    if _running() is not None:
        print(f"paternoster-e2e: a cluster is up already; {HINT}", file=sys.stderr)
        return 1
    _components(args)
    command = [*network.ISOLATE, sys.executable, "-P", "-m", "paternoster_e2e", "up"]
    listener = listening()
    env = {**os.environ, network.ISOLATED_VARIABLE: "1", LISTENER: str(listener.fileno())}
    log = _state_file().with_suffix(".log")
    _environment_file().unlink(missing_ok=True)
    with log.open("wb") as out:
        outside = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            pass_fds=[listener.fileno()],
        )  # fmt: skip
    listener.close()
    while not _environment_file().exists():
        if outside.poll() is not None:
            print(log.read_text(), file=sys.stderr)
            return 1
        time.sleep(0.1)
    # The process that runs the cluster is the only child of `unshare`.
    inside = int(Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text())
    state = {"pid": inside, "environment": json.loads(_environment_file().read_text())}
    _state_file().write_text(json.dumps(state) + "\n")
    print(log.read_text(), end="", flush=True)
    if args.detach:
        return 0
    try:
        return outside.wait()
    except KeyboardInterrupt:
        return _down(args)


def _keep_up(listener: socket.socket) -> int:
    """Inside the namespaces: start everything, say so, stop on SIGTERM."""
    started = time.monotonic()
    with running_cluster(ensure_programs(), ensure_images()) as cluster:
        environment = {name: cluster.environment[name] for name in ("KUBECONFIG", "PATH", "HELM_CONFIG_HOME")}
        publish_gateway(listener, Kubectl(cluster.environment))
        host, port = listener.getsockname()
        print(f"ready after {time.monotonic() - started:.0f} s; {HINT}")
        print(f"gateway: http://{host}:{port}, once the chart is installed", flush=True)
        partial = _environment_file().with_suffix(".partial")
        partial.write_text(json.dumps(environment))
        partial.replace(_environment_file())
        signal.pause()
    return 0


def _down(_: argparse.Namespace) -> int:
    state = _running()
    if state is None:
        print("paternoster-e2e: no cluster is up", file=sys.stderr)
        return 1
    os.kill(state["pid"], signal.SIGTERM)
    while Path(f"/proc/{state['pid']}").exists():
        time.sleep(0.1)
    _state_file().unlink(missing_ok=True)
    return 0


def _run(args: argparse.Namespace) -> int:  # noqa: RET503 - execvpe does not return
    """Replaces this process."""
    state = _running()
    if state is None:
        print("paternoster-e2e: no cluster is up: paternoster-e2e up --detach", file=sys.stderr)
        return 1
    enter = ["nsenter", f"--target={state['pid']}", "--net", "--mount", "--pid", f"--wd={Path.cwd()}", "--"]
    environment = {**os.environ, **state["environment"]}
    # The project's own commands lie beside this interpreter.
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    os.execvpe(enter[0], [*enter, *args.words], environment)


def _running() -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads(_state_file().read_text())
    except FileNotFoundError:
        return None
    return state if Path(f"/proc/{state['pid']}").exists() else None


def _state_file() -> Path:
    return cache_folder() / "cluster.json"


def _environment_file() -> Path:
    """What the cluster leaves for its neighbours when it is ready."""
    return cache_folder() / "cluster-environment.json"
