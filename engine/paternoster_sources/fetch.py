"""A model fetched into the cache, once, however many ask for it."""

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from paternoster_sources.address import IMAGE_FILES, Address, parse_address
from paternoster_sources.digest import hash_file
from paternoster_sources.download import Download
from paternoster_sources.errors import CacheUnusable, SourceError, SourceNotFound, Unreachable
from paternoster_sources.names import base_name
from paternoster_sources.plan import Digest, FetchPlan, make_plan
from paternoster_sources.progress import FetchProgress, Report, Tally
from paternoster_sources.remote.source import Source
from paternoster_sources.retry import DownloadStopped, RetryPauses
from paternoster_sources.storage.cache import CachedModel, DownloadCache
from paternoster_sources.storage.lock import POLL
from paternoster_sources.storage.record import FileToHash

T = TypeVar("T")

SIDE_BY_SIDE = 4
"""Files at a time."""
TICK = 1.0
"""Seconds between two reports."""
MOST_POLLS_IN_USE = 50
"""Looks in a row at a model that lacks a file or has a wrong one, and is in use all the same."""


def fetch_model(
    address: str,
    cache: DownloadCache | None = None,
    *,
    refresh: bool = False,
    verify: bool = False,
    report: Report = lambda _: None,
    retry: RetryPauses | None = None,
) -> CachedModel:
    """The model behind ``address``, from the cache without the network if it is there, else fetched.

    With ``refresh`` the source resolves the address anew; with ``verify`` all files in the cache are hashed, and not
    only those that changed since they were fetched. Raises :class:`SourceError`.
    """
    parsed = parse_address(address)
    cache = cache or DownloadCache.from_env()
    retry = retry or RetryPauses()
    hash_files = functools.partial(_hash_files, report=report)
    with _unusable_cache(address):
        if not refresh and (model := cache.find_model(address, hash_files, verify=verify)):
            return model
        cache.make_folder()
        cache.remove_leftovers()
    with _name_model(address), contextlib.closing(open_source(parsed)) as source:
        plan = make_plan(parsed, retry.call_again(source.list, f"model {address!r}"))
        with _unusable_cache(address):
            if (model := cache.lease_model(plan.key, hash_files, verify=verify)) is None:
                model = _fetch_plan(plan, cache, source, report, retry)
            cache.record_address(plan.address.text, plan.key)
        report(FetchProgress("ready", plan.total, plan.total))
        return model


def fetch_adapter(address: str, cache: DownloadCache, most_bytes: int) -> CachedModel:
    """The adapter (LoRA) behind ``address``, as its source has it now, in a folder of the cache.

    ``most_bytes``: of both of its files. What the cache has already is not fetched again. Raises :class:`SourceError`.
    """
    parsed, retry = parse_address(address), RetryPauses()
    with _unusable_cache(address):
        cache.make_folder()
        cache.remove_leftovers()
    with _name_model(address), _unusable_cache(address), contextlib.closing(open_source(parsed)) as source:
        listing = retry.call_again(source.list, f"model {address!r}")
        plan = make_plan(parsed, listing, most_adapter_bytes=most_bytes)
        hash_files = functools.partial(_hash_files, report=lambda _: None)
        return cache.lease_model(plan.key, hash_files) or _fetch_plan(plan, cache, source, lambda _: None, retry)


def fetch_side_file(address: str, name: str, folder: Path) -> None:
    """One file of a model's folder that is no weights, as ``config.json``, into ``folder``; not into the cache.

    Raises :class:`SourceError`, also where there is no such file.
    """
    parsed, retry = parse_address(address), RetryPauses()
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


def _fetch_plan(
    plan: FetchPlan, cache: DownloadCache, source: Source, report: Report, retry: RetryPauses
) -> CachedModel:
    lock, polls_in_use = cache.lock_model(plan.key), 0
    try:
        # Not the lock alone: who fetched the model uses it from then on, and holds the lock shared as long.
        while (model := cache.lease_model(plan.key)) is None:
            if lock.try_exclusive():
                _complete_files(plan, cache, source, report, retry)
                lock.unlock()
                continue
            polls_in_use = polls_in_use + 1 if lock.try_shared() else 0
            lock.unlock()
            if polls_in_use > MOST_POLLS_IN_USE:
                raise CacheUnusable(
                    f"{cache.folder / plan.key}: files of it are missing or are not those that were fetched, and "
                    "another process uses it: must end before it is fetched again"
                )
            report(FetchProgress("waiting", total=plan.total))
            time.sleep(POLL)
    finally:
        lock.close()
    return model


def _complete_files(plan: FetchPlan, cache: DownloadCache, source: Source, report: Report, retry: RetryPauses) -> None:
    if not cache.has_model(plan.key):
        digests = _download_files(plan, cache.prepare_folder(plan), source, report, retry)
        cache.complete_model(plan, digests)


def _download_files(
    plan: FetchPlan, folder: Path, source: Source, report: Report, retry: RetryPauses
) -> dict[str, Digest]:
    """The digests of all files, by the names that they have in ``folder``."""
    tally, stopping = Tally(plan.total), threading.Event()
    downloads = {
        base_name(file.name): Download(
            source, file, folder / base_name(file.name), tally.add, retry=retry, stopping=stopping
        ).run
        for file in plan.files
    }
    digests = _run_side_by_side(list(downloads.values()), tally, report, stopping)
    return dict(zip(downloads, digests, strict=True))


def _hash_files(files: Sequence[FileToHash], report: Report) -> list[Digest]:
    """The digests of files in the cache; their bytes count as those of an earlier attempt."""
    tally, stopping = Tally(sum(file.path.stat().st_size for file in files)), threading.Event()

    def advance(count: int) -> None:
        tally.add(count, False)

    jobs = [functools.partial(hash_file, file.path, file.algorithm, advance, stopping) for file in files]
    return _run_side_by_side(jobs, tally, report, stopping)


def _run_side_by_side(
    jobs: Sequence[Callable[[], T]], tally: Tally, report: Report, stopping: threading.Event
) -> list[T]:
    """What all jobs return, some at a time; the first that fails stops the others."""
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="fetch") as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            pending = set(futures)
            while pending:
                done, pending = wait(pending, TICK, FIRST_EXCEPTION)
                report(tally.measure_progress())
                if any(future.exception() for future in done):
                    break
        finally:
            stopping.set()
            pool.shutdown(cancel_futures=True)
    for future in futures:
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, DownloadStopped):
            raise error
    return [future.result() for future in futures]
