"""One HTTP request as Envoy's external processing filter streams it, and the messages that answer it; pure.

The endpoint picker protocol v1.0 of the Gateway API Inference Extension (its proposal 004): bodies are streamed in full
duplex, so that each byte of the request, and of an answer whose body is streamed as well, is sent back to Envoy.
Nothing is sent back before the end of the request: the choice of a replica is in the reply to its headers, which comes
first.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from envoy.config.core.v3.base_pb2 import HeaderValueOption
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from google.protobuf.struct_pb2 import Struct, Value
from multidict import CIMultiDict

from paternoster_gateway.picker.limits import PickerLimits
from paternoster_http.errors.refusal import Refusal

DESTINATION = "x-gateway-destination-endpoint"
"""Header and metadata: addresses of replicas, separated by commas; the first is the choice, the others in its place."""
SERVED = "x-gateway-destination-endpoint-served"
"""Metadata of an answer: the address of the replica that it is of."""
SUBSET = "x-gateway-destination-endpoint-subset"
"""Metadata of a request: addresses that it may go to."""
LOAD_BALANCER, SUBSET_HINT = "envoy.lb", "envoy.lb.subset_hint"
"""Namespaces of metadata."""
ATTRIBUTES = "envoy.filters.http.ext_proc"
"""Attributes of requests and answers, where Envoy is configured to send them."""
SOURCE_ADDRESS, UPSTREAM_ADDRESS, CODE_DETAILS = "source.address", "upstream.address", "response.code_details"
VIA_UPSTREAM = "via_upstream"
"""Code details of an answer that a replica gave, and not Envoy itself."""
MAX_HEADERS = 100
"""Limit for a request, pseudo-headers included."""
MAX_CHUNK_BYTES = 62_000
"""Bytes of a body in one message: Envoy refuses more than 64 KiB."""

_FULL_DUPLEX = ProcessingMode.FULL_DUPLEX_STREAMED


class ProtocolFault(Exception):
    """Envoy is configured for another protocol, or sends what this one does not have."""


@dataclass(frozen=True, slots=True)
class WholeRequest:
    """A client's request, all of whose body has come."""

    headers: Mapping[str, str]
    """Names in lower case, those of the pseudo-headers included; of several with one name the first."""
    body: bytes
    subset: frozenset[str] | None
    """Addresses that it may go to; None: to any."""
    peer: str = ""
    """Host of the client, where Envoy states it."""

    @property
    def path(self) -> str:
        """Path without its query."""
        return _path_of(self.headers)


@dataclass(frozen=True, slots=True)
class AnswerBegun:
    """Status and headers of an answer."""

    status: int
    headers: CIMultiDict[str]
    served: str
    """Address of the replica that it is of; empty where Envoy does not state it."""
    is_local: bool
    """Whether Envoy made it itself, as far as it states that."""


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """A piece of an answer's body, which has been sent back."""

    body: bytes


Event = WholeRequest | AnswerBegun | AnswerPiece


class ExchangePhase(Enum):
    """Phase of an exchange, by the message that comes next."""

    HEAD = "the headers of the request"
    BODY = "the body of the request"
    CHOICE = "a choice"
    """The driver's."""
    ANSWER = "the headers of the answer"
    ANSWER_BODY = "the body of the answer"
    END = "nothing"


class Exchange:
    """Reads the messages of one stream. The driver sends what :meth:`pop_replies` returns after each of them."""

    def __init__(self, limits: PickerLimits, hold_bytes: Callable[[int], object] = lambda _: None) -> None:
        """``hold_bytes`` is called with the bytes that more are kept of the body; it may raise :class:`Refusal`."""
        self._limits = limits
        self._hold_bytes = hold_bytes
        self._phase = ExchangePhase.HEAD
        self._headers: dict[str, str] = {}
        self._subset: frozenset[str] | None = None
        self._peer = ""
        self._pieces: list[bytes] = []
        self._num_bytes = 0
        self._has_body = self._has_trailers = False
        self._replies: list[ProcessingResponse] = []

    @property
    def path(self) -> str:
        """Path of the request, once its headers have come."""
        return _path_of(self._headers)

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the request, as :attr:`WholeRequest.headers`; empty where they break a limit."""
        return self._headers

    @property
    def is_answerable(self) -> bool:
        """Whether the driver may still answer the request itself."""
        return self._phase in (ExchangePhase.HEAD, ExchangePhase.BODY, ExchangePhase.CHOICE)

    @property
    def is_over(self) -> bool:
        """Whether nothing follows that concerns the picker."""
        return self._phase is ExchangePhase.END

    def receive(self, message: ProcessingRequest) -> Event | None:
        """The event that ``message`` completes, if it does.

        Raises :class:`Refusal` where the request breaks a limit, and :class:`ProtocolFault`.
        """
        if self._phase is ExchangePhase.HEAD:
            _check_configuration(message)
        kind = message.WhichOneof("request")
        match kind:
            case "request_headers" if self._phase is ExchangePhase.HEAD:
                return self._read_head(message)
            case "request_body" if self._phase is ExchangePhase.BODY:
                return self._read_body(message.request_body)
            case "request_trailers" if self._phase is ExchangePhase.BODY:
                self._has_trailers = True
                return self._finish_request()
            case "request_body" if self._phase is not ExchangePhase.HEAD:
                return None  # Envoy may send its last chunk twice
            case "response_headers" if self._phase not in (
                ExchangePhase.HEAD,
                ExchangePhase.ANSWER_BODY,
                ExchangePhase.END,
            ):
                return self._read_answer_head(message)
            case "response_body" if self._phase is ExchangePhase.ANSWER_BODY:
                return self._echo_answer(message.response_body)
            case "response_trailers" if self._phase is ExchangePhase.ANSWER_BODY:
                self._phase = ExchangePhase.END
                self._replies.append(_reply_to("response_trailers"))
                return None
        raise ProtocolFault(f"{kind or 'an empty message'} came, and {self._phase.value} was expected")

    def pop_replies(self) -> list[ProcessingResponse]:
        """Messages that answer the last one that was received."""
        replies, self._replies = self._replies, []
        return replies

    def forward(
        self,
        destinations: Sequence[str],
        headers: Mapping[str, str],
        removed: Collection[str],
        body: bytes,
    ) -> Iterator[ProcessingResponse]:
        """The messages by which the request goes to the first of ``destinations`` that Envoy reaches.

        ``headers`` are set and ``removed`` are not sent on; ``body`` is the one of the request, or in its place.
        """
        assert self._phase is ExchangePhase.CHOICE, "a request is forwarded once, when it is whole"
        self._phase = ExchangePhase.ANSWER
        choice = ",".join(destinations)
        headers = {**headers, DESTINATION: choice}
        if "content-length" in self._headers and len(body) != self._num_bytes:
            headers["content-length"] = str(len(body))
        reply = _reply_to("request_headers")
        common = reply.request_headers.response
        common.clear_route_cache = True
        for name, value in headers.items():
            option = common.header_mutation.set_headers.add()
            option.header.key, option.header.raw_value = name, value.encode()
            option.append_action = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
        common.header_mutation.remove_headers.extend(name for name in removed if name not in headers)
        reply.dynamic_metadata.update({LOAD_BALANCER: {DESTINATION: choice}})
        yield reply
        if self._has_body:
            yield from _split_body("request_body", body, ends_stream=not self._has_trailers)
        if self._has_trailers:
            yield _reply_to("request_trailers")

    def refuse(self, status: int, headers: Mapping[str, str], body: bytes) -> ProcessingResponse:
        """The message by which Envoy answers the request itself; nothing follows it."""
        assert self.is_answerable, "Envoy sends a request to a replica, or answers it"
        self._phase = ExchangePhase.END
        reply = ProcessingResponse()
        reply.immediate_response.status.code = status
        reply.immediate_response.body = body
        for name, value in headers.items():
            option = reply.immediate_response.headers.set_headers.add()
            option.header.key, option.header.raw_value = name, value.encode()
            option.append_action = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
        return reply

    def list_removed_headers(self, passed: Collection[str]) -> list[str]:
        """Names of the request's headers that are not among ``passed``, nor for Envoy alone."""
        return [name for name in self._headers if name not in passed and not name.startswith((":", "x-envoy-"))]

    def _read_head(self, message: ProcessingRequest) -> WholeRequest | None:
        pairs = message.request_headers.headers.headers
        self._phase, limits = ExchangePhase.BODY, self._limits
        size = sum(len(pair.key) + len(pair.raw_value or pair.value) for pair in pairs)
        for each in pairs:
            if each.key == ":path":
                self._headers[":path"] = _text_of(each)
        if len(pairs) > MAX_HEADERS:
            raise Refusal(431, f"The request has {len(pairs)} headers: at most {MAX_HEADERS} are allowed.")
        if size > limits.max_header_bytes:
            raise Refusal(431, f"The headers have {size} bytes: at most {limits.max_header_bytes} are allowed.")
        for each in pairs:
            self._headers.setdefault(each.key.lower(), _text_of(each))
        self._subset = _read_subset(message)
        self._peer = _find_text(_find_struct(message.attributes, ATTRIBUTES), SOURCE_ADDRESS).rpartition(":")[0]
        if message.request_headers.end_of_stream:
            return self._finish_request()
        self._has_body = True
        length = self._headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > limits.max_body_bytes:
            raise Refusal(413, _describe_long(length[:20], limits))
        return None

    def _read_body(self, body: Any) -> WholeRequest | None:
        self._num_bytes += len(body.body)
        if self._num_bytes > self._limits.max_body_bytes:
            self._pieces.clear()
            raise Refusal(413, _describe_long(f"at least {self._num_bytes}", self._limits))
        if body.body:
            self._hold_bytes(len(body.body))
            self._pieces.append(body.body)
        return self._finish_request() if body.end_of_stream else None

    def _finish_request(self) -> WholeRequest:
        self._phase = ExchangePhase.CHOICE
        body = b"".join(self._pieces)
        self._pieces.clear()
        return WholeRequest(self._headers, body, self._subset, self._peer)

    def _read_answer_head(self, message: ProcessingRequest) -> AnswerBegun:
        head = message.response_headers
        self._phase = ExchangePhase.END if head.end_of_stream else ExchangePhase.ANSWER_BODY
        self._replies.append(_reply_to("response_headers"))
        headers = CIMultiDict((pair.key, _text_of(pair)) for pair in head.headers.headers)
        status = headers.get(":status", "")
        attributes = _find_struct(message.attributes, ATTRIBUTES)
        served = _find_text(_find_struct(message.metadata_context.filter_metadata, LOAD_BALANCER), SERVED)
        details = _find_text(attributes, CODE_DETAILS)
        return AnswerBegun(
            int(status) if status.isdecimal() and len(status) == 3 else 0,
            headers,
            served or _find_text(attributes, UPSTREAM_ADDRESS),
            bool(details) and details != VIA_UPSTREAM,
        )

    def _echo_answer(self, body: Any) -> AnswerPiece:
        self._phase = ExchangePhase.END if body.end_of_stream else ExchangePhase.ANSWER_BODY
        self._replies += _split_body("response_body", body.body, ends_stream=body.end_of_stream)
        return AnswerPiece(body.body)


def _check_configuration(message: ProcessingRequest) -> None:
    """Raises :class:`ProtocolFault` where Envoy is configured to stream bodies otherwise.

    Releases of Envoy before 1.33 do not state how.
    """
    if message.observability_mode:
        raise ProtocolFault("observability_mode is true: must be false, or no request is sent where it should be")
    if not message.HasField("protocol_config"):
        return
    modes = message.protocol_config
    for name, mode, allowed in (
        ("request_body_mode", modes.request_body_mode, (_FULL_DUPLEX,)),
        ("response_body_mode", modes.response_body_mode, (ProcessingMode.NONE, _FULL_DUPLEX)),
    ):
        if mode not in allowed:
            names = " or ".join(ProcessingMode.BodySendMode.Name(each) for each in allowed)
            raise ProtocolFault(f"{name} is {ProcessingMode.BodySendMode.Name(mode)}: must be {names}")


def _reply_to(kind: str) -> ProcessingResponse:
    """A message that lets Envoy go on unchanged behind its message of ``kind``."""
    reply = ProcessingResponse()
    getattr(reply, kind).SetInParent()
    return reply


def _split_body(kind: str, body: bytes, *, ends_stream: bool) -> Iterator[ProcessingResponse]:
    for start in range(0, max(1, len(body)), MAX_CHUNK_BYTES):
        reply = ProcessingResponse()
        piece = getattr(reply, kind).response.body_mutation.streamed_response
        piece.body = body[start : start + MAX_CHUNK_BYTES]
        piece.end_of_stream = ends_stream and start + MAX_CHUNK_BYTES >= len(body)
        yield reply


def _path_of(headers: Mapping[str, str]) -> str:
    return headers.get(":path", "").partition("?")[0]


def _text_of(pair: Any) -> str:
    return pair.raw_value.decode("latin-1") if pair.raw_value else str(pair.value)


def _read_subset(message: ProcessingRequest) -> frozenset[str] | None:
    """Addresses of a list, or of one text with commas; None where there is no hint."""
    hint = _find_struct(message.metadata_context.filter_metadata, SUBSET_HINT)
    if hint is None or SUBSET not in hint.fields:
        return None
    value: Value = hint.fields[SUBSET]
    texts = [each.string_value for each in value.list_value.values] if value.HasField("list_value") else []
    return frozenset(
        address for text in (*texts, value.string_value) for each in text.split(",") if (address := each.strip())
    )


def _find_struct(structs: Mapping[str, Struct], name: str) -> Struct | None:
    # A read of a map of messages adds what it does not have.
    return structs[name] if name in structs else None  # noqa: SIM401


def _find_text(struct: Struct | None, name: str) -> str:
    return str(struct.fields[name].string_value) if struct is not None and name in struct.fields else ""


def _describe_long(size: str, limits: PickerLimits) -> str:
    return f"The body has {size} bytes: at most {limits.max_body_bytes} are allowed."
