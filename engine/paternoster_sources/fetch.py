"""A model fetched into the cache, once, however many ask for it."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from paternoster_sources.address import IMAGE_FILES, Address, parse_address
from paternoster_sources.download import Download
from paternoster_sources.errors import CacheUnusable, SourceError, SourceNotFound, Unreachable
from paternoster_sources.names import base_name
from paternoster_sources.plan import Plan, make_plan
from paternoster_sources.progress import Progress, Report, Tally
from paternoster_sources.remote.source import Source
from paternoster_sources.retry import Retry, Stopped
from paternoster_sources.storage.cache import Cache, Model
from paternoster_sources.storage.lock import POLL

SIDE_BY_SIDE = 4
"""Files at a time."""
TICK = 1.0
"""Seconds between two reports."""


def fetch_model(
    address: str,
    cache: Cache | None = None,
    *,
    refresh: bool = False,
    report: Report = lambda _: None,
    retry: Retry | None = None,
) -> Model:
    """The model behind ``address``, from the cache without the network if it is there, else fetched.

    With ``refresh`` the source resolves the address anew. Raises :class:`SourceError`.
    """
    parsed = parse_address(address)
    cache = cache or Cache.from_env()
    retry = retry or Retry()
    with _unusable_cache(address):
        if not refresh and (model := cache.find_model(address)):
            return model
        cache.make_folder()
    with _name_model(address), contextlib.closing(open_source(parsed)) as source:
        plan = make_plan(parsed, retry.call_again(source.list, f"model {address!r}"))
        with _unusable_cache(address):
            return _fetch_plan(plan, cache, source, report, retry)


def fetch_side_file(address: str, name: str, folder: Path) -> None:
    """One file of a model's folder that is no weights, as ``config.json``, into ``folder``; not into the cache.

    Raises :class:`SourceError`, also where there is no such file.
    """
    parsed, retry = parse_address(address), Retry()
    with _name_model(address), _unusable_cache(address), contextlib.closing(open_source(parsed)) as source:
        plan = make_plan(parsed, retry.call_again(source.list, f"model {address!r}"))
        for file in plan.files:
            if base_name(file.name) == name:
                Download(source, file, folder / name, lambda count, came: None, retry=retry).run()
                return
        raise SourceNotFound(f"there is no file {name!r} beside the weights")


@contextlib.contextmanager
def _name_model(address: str) -> Iterator[None]:
    """Add the model to an error about one of its files."""
    try:
        yield
    except SourceError as error:
        if address in str(error):
            raise
        raise type(error)(f"model {address!r}: {error}") from error


@contextlib.contextmanager
def _unusable_cache(address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CacheUnusable(f"model {address!r}: {error}") from error


def open_source(address: Address) -> Source:
    """Libraries are imported for the one source that is used. Raises :class:`SourceError`."""
    try:
        return _open_source(address)
    except OSError as error:
        file = os.environ.get("SSL_CERT_FILE")
        raise Unreachable(f"model {address.text!r}: $SSL_CERT_FILE is {file!r}: {error.strerror or error}") from error


def _open_source(address: Address) -> Source:
    if address.scheme == "hf":
        from paternoster_sources.remote.hub import Hub

        return Hub(address)
    if address.scheme == "https":
        from paternoster_sources.remote.https import Https

        return Https(address)
    if address.scheme in IMAGE_FILES:
        from paternoster_sources.remote.image_files import ImageFiles

        return ImageFiles(address)
    from paternoster_sources.remote.buckets import Bucket

    return Bucket(address)


def _fetch_plan(plan: Plan, cache: Cache, source: Source, report: Report, retry: Retry) -> Model:
    lock = cache.lock_model(plan.key)
    try:
        # Not the lock alone: who fetched the model uses it from then on, and holds the lock shared as long.
        while (model := cache.lease_model(plan.key)) is None:
            if lock.try_exclusive():
                _complete_files(plan, cache, source, report, retry)
                lock.unlock()
            else:
                report(Progress("waiting", total=plan.total))
                time.sleep(POLL)
    finally:
        lock.close()
    cache.record_address(plan.address.text, plan.key)
    report(Progress("ready", plan.total, plan.total))
    return model


def _complete_files(plan: Plan, cache: Cache, source: Source, report: Report, retry: Retry) -> None:
    if not cache.has_model(plan.key):
        _download_files(plan, cache.prepare_folder(plan), source, report, retry)
        cache.complete_model(plan)


def _download_files(plan: Plan, folder: Path, source: Source, report: Report, retry: Retry) -> None:
    """All files, some at a time; the first that fails stops the others."""
    tally, stopping = Tally(plan.total), threading.Event()
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="fetch") as pool:
        downloads = [
            pool.submit(
                Download(source, file, folder / base_name(file.name), tally.add, retry=retry, stopping=stopping).run
            )
            for file in plan.files
        ]
        try:
            pending = set(downloads)
            while pending:
                done, pending = wait(pending, TICK, FIRST_EXCEPTION)
                report(tally.measure_progress())
                if any(future.exception() for future in done):
                    break
        finally:
            stopping.set()
            pool.shutdown(cancel_futures=True)
    for future in downloads:
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, Stopped):
            raise error
