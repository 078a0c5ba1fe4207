"""A model in an image of containers that lies in a file or folder of this machine: its layers, read and not unpacked.

Each layer is hashed and looked through once, before anything of it is believed. Files are then read out of it, those of
a compressed layer one behind the other where they can be.
"""

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from paternoster_sources import names
from paternoster_sources.address import Address
from paternoster_sources.errors import Corrupted, Interrupted, SourceError, SourceNotFound, Unauthorized, UnsafeListing
from paternoster_sources.plan import Digest, Listing, RemoteFile
from paternoster_sources.remote.blobs import Blobs, open_blobs
from paternoster_sources.remote.image_manifest import Descriptor, Image, find_image
from paternoster_sources.remote.layers import (
    LayerChanges,
    LayerEntry,
    find_compression,
    lay_over,
    open_decompressed,
    scan_layer,
)
from paternoster_sources.remote.source import Stream

USUAL = ("", "models")
"""Folders of an image in which models are: its top, and where KServe looks for them."""
CHUNK = 2**20
MOST_OPEN = 8
"""Layers that are kept open where a file ended, for the next file."""


class _Reader:
    """A layer's archive, read forward by one at a time."""

    def __init__(self, layer: int, file: BinaryIO, form: str | None) -> None:
        self.layer, self._file = layer, file
        self.archive = open_decompressed(file, form)

    def close(self) -> None:
        self.archive.close()
        self._file.close()


class ImageFiles:
    """One image of an ``oci-archive`` or ``oci-layout``."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._blobs: Blobs
        self._image: Image
        self._entries: dict[str, LayerEntry] = {}
        self._idle: list[_Reader] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            for reader in self._idle:
                reader.close()
            self._idle.clear()

    def list(self) -> Listing:
        with self._translate_errors():
            self._blobs = open_blobs(Path(self._address.place))
            self._image = find_image(self._blobs, self._address.revision)
            folders = (self._address.prefix,) if self._address.prefix else USUAL
            found: dict[str, LayerEntry] = {}
            # An image may name a layer thousands of times.
            scanned: dict[str, LayerChanges] = {}
            for number, layer in enumerate(self._image.layers):
                if layer.digest not in scanned:
                    scanned[layer.digest] = self._scan_layer(layer, number, folders)
                found = lay_over(found, scanned[layer.digest])
            self._entries = _select_folder(found, folders)
            return Listing(
                tuple(self._describe_file(name, entry) for name, entry in self._entries.items()), self._image.digest
            )

    @contextmanager
    def open_stream(self, file: RemoteFile, start: int) -> Iterator[Stream]:
        entry = self._entries[file.name]
        reader = self._get_reader(entry.layer, entry.offset + start)
        try:
            yield Stream(start, self._read_chunks(reader.archive, entry.offset + start, entry.size - start))
        except BaseException:
            reader.close()
            raise
        self._put_back(reader)

    def _describe_file(self, name: str, entry: LayerEntry) -> RemoteFile:
        if not names.is_model_file(name):
            return RemoteFile(name, entry.size)
        if not entry.sha256:
            raise UnsafeListing(f"{name!r} is a link, a device or a file with holes: must be a plain file")
        return RemoteFile(name, entry.size, Digest("sha256", entry.sha256))

    def _scan_layer(self, layer: Descriptor, number: int, folders: tuple[str, ...]) -> LayerChanges:
        form = find_compression(layer.media_type)
        with self._blobs.open_blob(layer.file) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            hashed = _Hashed(file)
            fault: SourceError | None = None
            try:
                changes = scan_layer(hashed, form, size, number, folders)  # type: ignore[arg-type]
            except SourceError as error:
                fault = error
            if hashed.finish() != layer.digest:
                raise Corrupted(f"the sha256 of {layer.file} is not what its name says") from fault
        if fault is not None:
            raise fault
        return changes

    def _get_reader(self, layer: int, offset: int) -> _Reader:
        """One for the caller alone, which is not beyond ``offset`` yet."""
        with self._lock:
            before = [each for each in self._idle if each.layer == layer and each.archive.tell() <= offset]
            if before:
                nearest = max(before, key=lambda each: each.archive.tell())
                self._idle.remove(nearest)
                return nearest
        blob = self._image.layers[layer]
        with self._translate_errors():
            return _Reader(layer, self._blobs.open_blob(blob.file), find_compression(blob.media_type))

    def _put_back(self, reader: _Reader) -> None:
        with self._lock:
            self._idle.append(reader)
            while len(self._idle) > MOST_OPEN:
                self._idle.pop(0).close()

    def _read_chunks(self, archive: BinaryIO, start: int, left: int) -> Iterator[bytes]:
        with self._translate_errors():
            archive.seek(start)
        while left > 0:
            with self._translate_errors():
                data = archive.read(min(CHUNK, left))
            if not data:
                return
            left -= len(data)
            yield data

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """What the system says has a reason, too."""
        path = self._address.place
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            raise SourceNotFound(
                f"{error.filename or path}: {error.strerror}: must be of an OCI image layout"
            ) from error
        except PermissionError as error:
            raise Unauthorized(f"{error.filename or path}: {error.strerror}") from error
        except (OSError, EOFError) as error:
            raise Interrupted(f"{path}: {error}") from error


class _Hashed:
    """A file that may be read forward, with the SHA-256 of all of it at its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash, self._at = file, hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(CHUNK if size < 0 else size)
        self._hash.update(data)
        self._at += len(data)
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        while self._at < position and self.read(min(CHUNK, position - self._at)):
            pass
        return self._at

    def seekable(self) -> bool:
        """Whether it seeks, which a decompressor asks before it goes forward."""
        return True

    def tell(self) -> int:
        return self._at

    def finish(self) -> str:
        while self.read(CHUNK):
            pass
        return f"sha256:{self._hash.hexdigest()}"


def _select_folder(found: dict[str, LayerEntry], folders: tuple[str, ...]) -> dict[str, LayerEntry]:
    """The files of the first of ``folders`` that has weights, by their names in it; of the first where none has."""
    each = [
        {path.rpartition("/")[2]: entry for path, entry in found.items() if path.rpartition("/")[0] == folder}
        for folder in folders
    ]
    return next((files for files in each if any(map(names.is_weights, files))), each[0])
