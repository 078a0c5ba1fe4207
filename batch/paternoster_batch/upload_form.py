"""The multipart form of an upload, written to the disk while it is read: no more of it is in memory than one piece."""

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from paternoster_batch.store import FileRow, Upload

MAX_FILE_BYTES = 200 * 2**20
"""OpenAI's limit of a batch's input."""
MAX_FORM_BYTES = MAX_FILE_BYTES + 2**16
"""The fields beside the file included."""
MAX_FIELD_BYTES = 256
MAX_HEADERS = 8
MAX_HEADER_BYTES = 1024
MAX_FILENAME = 255
"""Characters."""
PURPOSE = "batch"


class InvalidForm(Exception):
    """The form is refused with ``status``."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.status = status


class UploadForm:
    """A form with ``file`` and ``purpose``; each of its methods raises :class:`InvalidForm`."""

    def __init__(self, content_type: str, upload: Upload) -> None:
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise InvalidForm("Content-Type must be multipart/form-data with a boundary")
        self._upload = upload
        self._fields: dict[str, bytes] = {}
        self._filename: str | None = None
        self._header = self._value = b""
        self._name = ""
        self._is_whole = False
        try:
            self._parser = MultipartParser(
                options[b"boundary"],
                {
                    "on_part_begin": self._begin_part,
                    "on_header_field": self._add_header,
                    "on_header_value": self._add_value,
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._begin_data,
                    "on_part_data": self._add_data,
                    "on_end": self._end,
                },
                max_header_count=MAX_HEADERS,
                max_header_size=MAX_HEADER_BYTES,
            )
        except FormParserError as error:
            raise InvalidForm(f"the form cannot be read: {error}") from error

    def feed(self, piece: bytes) -> None:
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise InvalidForm(f"the form cannot be read: {error}") from error

    def finish(self) -> FileRow:
        """The file, durable."""
        if not self._is_whole:
            raise InvalidForm("the form ends before its last boundary")
        if self._filename is None:
            raise InvalidForm("file: the form must have one", "file")
        purpose = self._fields.get("purpose", b"").decode(errors="replace")
        if purpose != PURPOSE:
            raise InvalidForm(f"purpose is {purpose!r}: must be {PURPOSE!r}", "purpose")
        return self._upload.publish_file(self._filename, purpose)

    def _begin_part(self) -> None:
        self._name, self._header, self._value = "", b"", b""

    def _add_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            options = parse_options_header(self._value)[1]
            self._name = options.get(b"name", b"").decode(errors="replace")
            if self._name == "file":
                if self._filename is not None:
                    raise InvalidForm("file: the form has more than one", "file")
                self._filename = options.get(b"filename", b"upload").decode(errors="replace")[:MAX_FILENAME]
        self._header = self._value = b""

    def _begin_data(self) -> None:
        if self._name == "file":
            return
        if self._name != "purpose" or self._name in self._fields:
            raise InvalidForm(f"{self._name[:64]!r}: the form may have file and purpose, each once", self._name[:64])
        self._fields[self._name] = b""

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._name != "file":
            self._fields[self._name] += data[start:end]
            if len(self._fields[self._name]) > MAX_FIELD_BYTES:
                raise InvalidForm(f"{self._name} is longer than {MAX_FIELD_BYTES} bytes", self._name)
            return
        if self._upload.size + end - start > MAX_FILE_BYTES:
            raise InvalidForm(f"file is longer than {MAX_FILE_BYTES} bytes", "file", 413)
        self._upload.write(data[start:end])

    def _end(self) -> None:
        self._is_whole = True
