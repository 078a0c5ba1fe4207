"""Messages as Envoy sends them to a picker."""

from collections.abc import Mapping, Sequence

from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse

HEADERS = {":method": "POST", ":path": "/v1/chat/completions", "content-type": "application/json"}


def request_head(
    headers: Mapping[str, str] | None = None, *, ends: bool = False, subset: Sequence[str] | str | None = None
) -> ProcessingRequest:
    """The headers of a request; ``subset``: its hint, as a list or as one text."""
    message = ProcessingRequest()
    message.request_headers.end_of_stream = ends
    for name, value in (HEADERS if headers is None else headers).items():
        message.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    if subset is not None:
        hint = message.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        hint.update({"x-gateway-destination-endpoint-subset": subset if isinstance(subset, str) else list(subset)})
    return message


def request_body(body: bytes, *, ends: bool) -> ProcessingRequest:
    message = ProcessingRequest()
    message.request_body.body, message.request_body.end_of_stream = body, ends
    return message


def request_trailers() -> ProcessingRequest:
    message = ProcessingRequest()
    message.request_trailers.SetInParent()
    return message


def answer_head(
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    *,
    served: str = "",
    attributes: Mapping[str, str] | None = None,
    ends: bool = False,
) -> ProcessingRequest:
    """The headers of an answer; ``served``: metadata with the address of its replica."""
    message = ProcessingRequest()
    message.response_headers.end_of_stream = ends
    for name, value in {":status": str(status), **(headers or {})}.items():
        message.response_headers.headers.headers.add(key=name, raw_value=value.encode())
    if served:
        metadata = message.metadata_context.filter_metadata["envoy.lb"]
        metadata.update({"x-gateway-destination-endpoint-served": served})
    if attributes:
        message.attributes["envoy.filters.http.ext_proc"].update(attributes)
    return message


def answer_body(body: bytes, *, ends: bool) -> ProcessingRequest:
    message = ProcessingRequest()
    message.response_body.body, message.response_body.end_of_stream = body, ends
    return message


def echoed_body(replies: Sequence[ProcessingResponse], kind: str = "request_body") -> bytes:
    """The bytes that replies send back; each message of them is one that Envoy accepts."""
    pieces = [each for each in replies if each.WhichOneof("response") == kind]
    streamed = [getattr(each, kind).response.body_mutation.streamed_response for each in pieces]
    assert all(getattr(each, kind).response.body_mutation.HasField("streamed_response") for each in pieces)
    assert all(len(each.body) <= 62_000 for each in streamed)
    assert not any(each.end_of_stream for each in streamed[:-1])
    return b"".join(each.body for each in streamed)


def headers_set(reply: ProcessingResponse) -> dict[str, str]:
    """Headers that the reply to a request's headers sets."""
    options = reply.request_headers.response.header_mutation.set_headers
    return {each.header.key: each.header.raw_value.decode() for each in options}
