"""``paternoster pull``: a model into this machine's cache."""

import argparse
import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from paternoster_contract.cli.terminal import print_error, print_line
from paternoster_contract.http.paths import STATS
from paternoster_contract.labels import MODEL_EXIT_STATUS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from paternoster_contract.fetch_status import FetchStatus
    from paternoster_sources.progress import FetchProgress
    from paternoster_sources.storage.cache import CachedModel

HELP = "fetch a model from the hub, a bucket, a web server or an image into the local cache"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help="hf://org/name[@revision][/file.gguf], s3://bucket/prefix, gs://bucket/prefix, "
        "https://host/path/model.gguf[#sha256=...], oci-archive:///path/image.tar[#tag=...&path=...], or "
        "oci-layout:///path/folder[#tag=...&path=...]",
    )
    parser.add_argument(
        "--status-file",
        type=Path,
        metavar="FILE",
        help="keep one line of JSON there: how far it is, and at the end the path or the reason why not",
    )
    parser.add_argument(
        "--status-port",
        type=int,
        metavar="PORT",
        help=f"answer the same to GET {STATS} on this port while the model is fetched",
    )
    parser.add_argument(
        "--no-refresh",
        dest="refresh",
        action="store_false",
        help="take what the cache has for ADDRESS without asking its source, as serve does",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="hash all files that the cache has of the model, and fetch it again where one is not what was fetched",
    )
    parser.add_argument(
        "--link",
        type=Path,
        metavar="PATH",
        help="make PATH a symbolic link to the folder with the model's files; a link there is replaced",
    )
    parser.add_argument(
        "--exec",
        dest="command",
        nargs=argparse.REMAINDER,
        default=[],
        metavar="COMMAND",
        help="become COMMAND, all that follows, when the model is there; while it runs the model is not evicted",
    )
    parser.epilog = (
        "Prints the path of the model. $PATERNOSTER_MODELS is the cache's folder (default: "
        "~/.cache/paternoster/models), $PATERNOSTER_MODELS_LIMIT its size in bytes, above which the least recently "
        "used models are removed. Credentials: $HF_TOKEN or what `hf auth login` keeps, $AWS_*, $GOOGLE_*. Exit status "
        f"{MODEL_EXIT_STATUS}: the model cannot be fetched as it is asked for; 1: it may be later."
    )


def run(args: argparse.Namespace) -> int:
    from paternoster_sources.errors import SourceError
    from paternoster_sources.report import StatusFile, of_error, of_model
    from paternoster_sources.status_server import StatusServer

    publishers: list[StatusFile | StatusServer] = []
    for flag, value, make in (
        ("--status-file", args.status_file, StatusFile),
        ("--status-port", args.status_port, StatusServer),
    ):
        try:
            publishers += [] if value is None else [make(value)]
        except (OSError, OverflowError) as error:
            problem = error.strerror if isinstance(error, OSError) else error
            print_error(f"paternoster pull: {flag} is {str(value)!r}: {problem}")
            return 2

    def publish(status: "FetchStatus") -> None:
        for each in publishers:
            each.publish(status)

    try:
        model = _pull_model(args.address, args.refresh, args.verify, publish)
    except SourceError as error:
        publish(of_error(error))
        print_error(f"paternoster pull: {error.reason}: {error}")
        return 1 if error.transient else MODEL_EXIT_STATUS
    try:
        if args.link is not None:
            link_folder(args.link, model.path)
    except OSError as error:
        print_error(f"paternoster pull: --link is {str(args.link)!r}: {error.strerror}")
        return 2
    publish(of_model(model.path, model.revision))
    print_line(str(model.path))
    return become_program(args.command, model) if args.command else 0


def link_folder(link: Path, path: Path) -> None:
    """Make ``link`` lead to the folder of a model, which is ``path`` or has that file. Raises ``OSError``."""
    if link.exists() and not link.is_symlink():
        raise FileExistsError(errno.EEXIST, "is there, and no symbolic link", str(link))
    new = link.with_name(f".{link.name}.new")
    folder = os.open(link.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Of two that link here one waits; the lock of one that is killed is free, and its link is in the way.
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        new.unlink(missing_ok=True)
        new.symlink_to(path if path.is_dir() else path.parent)
        os.replace(new, link)
    finally:
        os.close(folder)


def become_program(command: "Sequence[str]", model: "CachedModel") -> int:
    """Run ``command`` in place of this process, with the model's lease; returns only where it cannot."""
    if model.lease is not None:
        model.lease.make_inheritable()
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        print_error(f"paternoster pull: --exec is {command[0]!r}: {error.strerror}")
        return 2


def _pull_model(address: str, refresh: bool, verify: bool, publish: "Callable[[FetchStatus], None]") -> "CachedModel":
    from paternoster_sources.fetch import fetch_model
    from paternoster_sources.report import of_progress, terminal_bar

    with terminal_bar(address) as bar:

        def report_progress(progress: "FetchProgress") -> None:
            bar(progress)
            publish(of_progress(progress))

        return fetch_model(address, refresh=refresh, verify=verify, report=report_progress)
