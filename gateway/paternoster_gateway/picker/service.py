"""Answers streams of Envoy's on asyncio: what a request may be sent to is decided by the gateway's own routing.

Envoy has the bytes of an answer, so that nothing of it can be repeated or continued here: Envoy replaces a replica that
does not answer, in the order of the list that it gets with the request. The stream of a request is open until its
answer ends, where Envoy is configured to send trailers of answers; until then the request counts for its replica.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import grpc

from paternoster_contract.access.identity import HEADER
from paternoster_contract.access.keys import client_key, digest_key
from paternoster_contract.http import paths
from paternoster_contract.http.headers import REQUEST_ID
from paternoster_contract.http.routes import FORWARDED
from paternoster_contract.routing import Replica, RoutingTable
from paternoster_gateway.admission.admission import ClientAdmission, admit_request, opens_any_model
from paternoster_gateway.admission.known_parties import KnownParties
from paternoster_gateway.app import describe_model, describe_models
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.session import OutputTokens
from paternoster_gateway.errors import GatewayError, unauthorized_error, unavailable_error
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_gateway.picker.exchange import AnswerBegun, AnswerPiece, Exchange, ProtocolFault, WholeRequest
from paternoster_gateway.picker.limits import PickerLimits
from paternoster_gateway.process.drain import Shutdown
from paternoster_gateway.proxy.answer_progress import result_of
from paternoster_gateway.proxy.body import read_call, rename_in_body
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.proxy.headers import (
    EVENT_STREAM,
    FORWARDED_HEADERS,
    is_status_of_engine,
    media_type_of,
    prompt_tokens_of,
)
from paternoster_gateway.routing.decisions import Queue, Result, RoutedRequest, Send
from paternoster_gateway.routing.replica_picker import address_of_replica
from paternoster_gateway.sent_keys import SentKeys
from paternoster_http.connections import address_of
from paternoster_http.errors.refusal import RETRY_AFTER_SECONDS, TYPES, Refusal
from paternoster_http.errors.vendor_errors import vendor_body
from paternoster_http.open_requests import OpenRequest, OpenRequests, State

log = logging.getLogger(__name__)

PASSED_HEADERS = FORWARDED_HEADERS | {
    REQUEST_ID.lower(), "content-length", "host", "transfer-encoding", "x-forwarded-proto"
}  # fmt: skip
"""Headers of a client's request that replicas get; no key, nothing that gateways alone send to engines.
Envoy finds no route for a request without ``x-forwarded-proto``."""
DROPPED_REASON = "x-llm-d-request-dropped-reason"
"""Header of an answer: why a request went to no replica."""
_DROPPED = {429: "rejected-saturated", 503: "rejected-no-endpoints", 504: "rejected-ttl-expired"}
_SHUTTING_DOWN, _EVICTED, _SATURATED = "rejected-shutting-down", "evicted-queue-pressure", "rejected-saturated"


class Picker:
    """The gRPC service ``envoy.service.ext_proc.v3.ExternalProcessor``."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        read_table: Callable[[], RoutingTable],
        keys: SentKeys,
        metrics: GatewayMetrics,
        limits: PickerLimits,
        shutdown: Shutdown,
    ) -> None:
        """``keys``: of the gateway for engines, which Envoy sends in place of the client's."""
        self.dispatcher = dispatcher
        self.read_table = read_table
        self.keys = keys
        self.metrics = metrics
        self.limits = limits
        self.shutdown = shutdown
        self.known_parties = KnownParties()
        self.open_requests = OpenRequests(limits.max_streams, limits.max_held_body_bytes)
        self._streams: set[PickerStream] = set()

    async def Process(self, _: object, context: Any) -> None:  # noqa: N802
        """Answer one stream, which has one HTTP request."""
        stream = PickerStream(self, context)
        self._streams.add(stream)
        try:
            await stream.serve()
        finally:
            self._streams.discard(stream)

    def release_answers(self) -> None:
        """End the streams of requests that are at a replica: Envoy goes on with their answers by itself."""
        for stream in list(self._streams):
            stream.release_answer()


class PickerStream:
    """One stream, from the headers of a request to the end of its answer."""

    def __init__(self, picker: Picker, context: Any) -> None:
        self._picker = picker
        self._context = context
        task = asyncio.current_task()
        assert task is not None, "gRPC runs each stream in a task"
        self._task = task
        self._open_request: OpenRequest = picker.open_requests.add_request("", self._give_up)
        self._exchange = Exchange(picker.limits, self._open_request.hold_body)
        self._ending: Refusal | None = None
        """Reason for which the picker itself has cancelled the task, where it has."""
        self._is_released = self._answers = False
        self._request: RoutedRequest | None = None
        self._admission = ClientAdmission("")
        self._destinations: dict[str, str] = {}
        """URLs by the addresses that Envoy has, in order."""
        self._replica = ""
        """URL of the one that has the request."""

    async def serve(self) -> None:
        """Read and answer messages until the stream may end."""
        try:
            async with asyncio.timeout(self._picker.limits.stream_timeout):
                await self._serve_request()
        except TimeoutError:
            log.warning("a stream is closed after %g s", self._picker.limits.stream_timeout)
            await self._refuse(Refusal(408, "The request took too long."))
        except asyncio.CancelledError:
            if not (self._ending or self._is_released):
                raise  # the client has left
            self._task.uncancel()
            if self._ending is not None:
                await self._refuse(self._ending)
        except (GatewayError, Refusal, ProtocolFault) as fault:
            # Frames of its traceback have it in variables: a cycle, in which the body would stay until a collection.
            fault.__traceback__ = fault.__context__ = None
            await self._refuse(fault)
        finally:
            if self._request is not None:
                self._picker.dispatcher.end_request(self._request)
                self._picker.metrics.end_request(self._admission.model, self._admission.fleet)
            self._open_request.release_all()

    def release_answer(self) -> None:
        """End the stream, if its request is at a replica."""
        if self._answers and not self._is_released:
            self._is_released = True
            self._task.cancel()

    def _give_up(self, _: OpenRequest, refusal: Refusal) -> None:
        """End the request for another one's."""
        self._ending = refusal
        self._task.cancel()

    async def _serve_request(self) -> None:
        whole = await self._read_request()
        if whole is None:
            return
        if whole.path not in FORWARDED:
            await self._answer_models(whole.path)
            return
        call, admission = await self._admit(whole)
        replica = await self._choose(call, whole)
        await self._forward(call, admission, replica)
        del whole, call  # their body is Envoy's now
        if not self._picker.shutdown.begun:  # else Envoy goes on with the answer by itself
            await self._follow_answer()

    async def _read_request(self) -> WholeRequest | None:
        """The whole request; None where it ends, or Envoy answers it, before that."""
        is_checked = False
        try:
            async with asyncio.timeout(self._picker.limits.body_timeout):
                while (message := await self._context.read()) is not grpc.aio.EOF:
                    event = self._exchange.receive(message)
                    await self._send_replies()
                    if isinstance(event, AnswerBegun):
                        return None
                    if not is_checked:
                        self._check_head()
                        is_checked = True
                    if isinstance(event, WholeRequest):
                        self._open_request.set_state(State.UNANSWERED)
                        return event
        except TimeoutError:
            limit = self._picker.limits.body_timeout
            raise Refusal(408, f"The body did not come within {limit:g} s.") from None
        return None

    def _check_head(self) -> None:
        """Refuse a request by its headers alone, before its body is read, and charge it to its key's party."""
        headers, table = self._exchange.headers, self._picker.read_table()
        self._open_request.take_place()
        if self._picker.shutdown.begun:
            raise unavailable_error("This endpoint picker ends; send the request again.", RETRY_AFTER_SECONDS)
        path, method = self._exchange.path, headers.get(":method", "")
        is_list = path == paths.MODELS or path.startswith(f"{paths.MODELS}/")
        if path not in FORWARDED and not is_list:
            raise GatewayError(404, "NotFoundError", "There is nothing at this path.")
        if method != ("GET" if is_list else "POST"):
            raise GatewayError(405, "MethodNotAllowedError", f"The method is {method[:16]}, which this path lacks.")
        if headers.get("content-encoding", "identity") != "identity":
            raise Refusal(415, "The body has a Content-Encoding: send it without one.")
        key_digest = digest_key(client_key(headers))
        if not is_list and not opens_any_model(table, key_digest):
            raise unauthorized_error()
        if (party := self._picker.known_parties.party_of(key_digest, table)) is not None:
            self._open_request.charge_party(party)

    async def _answer_models(self, path: str) -> None:
        table, key_digest = self._picker.read_table(), digest_key(client_key(self._exchange.headers))
        model = path.removeprefix(paths.MODELS).removeprefix("/")
        document = describe_model(table, model, key_digest) if model else describe_models(table, key_digest)
        await self._answer(200, document, {})

    async def _admit(self, whole: WholeRequest) -> tuple[Call, ClientAdmission]:
        """The call, and what its key allows; raises :class:`GatewayError`."""
        table, key_digest = self._picker.read_table(), digest_key(client_key(whole.headers))
        call = await read_call(whole.path, whole.body, key_digest, table, {}, self._open_request)
        peer = address_of(whole.peer.strip("[]")) if whole.peer else ""
        admission = admit_request(table, call.model, key_digest, time.time(), peer=peer, named=call.named)
        self._admission = admission
        self._picker.known_parties.add_party(admission)
        self._open_request.charge_party(admission.party)
        return call, admission

    async def _choose(self, call: Call, whole: WholeRequest) -> Replica:
        """The replica for ``call``, once there is one; raises :class:`GatewayError`."""
        dispatcher, admission = self._picker.dispatcher, self._admission
        request = await dispatcher.open_call(call, admission, whole.subset)
        self._request = request
        self._picker.metrics.begin_request(admission.model)
        while isinstance(decision := dispatcher.decide(request, admission), Queue):
            await dispatcher.await_wake(request, decision.until)
        assert isinstance(decision, Send), "only a retry has a result to return"
        return decision.replica

    async def _forward(self, call: Call, admission: ClientAdmission, replica: Replica) -> None:
        """Have Envoy send ``call`` to ``replica``, and to others where that one does not answer."""
        assert self._request is not None
        self._open_request.set_state(None)  # it gives way to no other any more
        upstream = replica.upstream_model
        fallbacks = self._picker.dispatcher.list_fallbacks(self._request, admission)
        fallbacks = [each for each in fallbacks if each.upstream_model == upstream]
        self._destinations = {address_of_replica(each.url): each.url for each in (replica, *fallbacks)}
        self._replica = replica.url
        headers = self._picker.keys.make_headers(admission.fleet)
        if admission.identity is not None:
            headers[HEADER] = admission.identity.encode()
        headers = {name.lower(): value for name, value in headers.items()}
        body = await rename_in_body(call.body, upstream) if upstream else call.body
        removed = self._exchange.list_removed_headers(PASSED_HEADERS)
        for reply in self._exchange.forward(list(self._destinations), headers, removed, body):
            await self._context.write(reply)
        self._open_request.hold_body(-len(call.body))
        self._answers = True

    async def _follow_answer(self) -> None:
        output: OutputTokens | None = None
        assert self._request is not None
        count_output = self._picker.dispatcher.count_output
        try:
            while not self._exchange.is_over and (message := await self._context.read()) is not grpc.aio.EOF:
                event = self._exchange.receive(message)
                await self._send_replies()
                if isinstance(event, AnswerBegun):
                    self._report_answer(self._request, event)
                    output = OutputTokens(is_stream=media_type_of(event.headers) == EVENT_STREAM)
                elif isinstance(event, AnswerPiece) and output is not None:
                    count_output(self._request, output.feed(event.body))
        finally:
            if output is not None:
                count_output(self._request, output.count_final())

    def _report_answer(self, request: RoutedRequest, answer: AnswerBegun) -> None:
        """Count the request where it was served, and report what came of it."""
        dispatcher, metrics = self._picker.dispatcher, self._picker.metrics
        metrics.requests.labels(metrics.label_of(self._admission.model), self._exchange.path, str(answer.status)).inc()
        addresses = list(self._destinations)
        if answer.is_local and not answer.served:
            dispatcher.report_fallback(request, [self._replica], None)
            return
        if answer.served and answer.served != addresses[0]:
            at = addresses.index(answer.served) if answer.served in addresses else 1
            failed = [self._destinations[each] for each in addresses[:at]]
            served = self._find_url(answer.served)
            dispatcher.report_fallback(request, failed, served)
            if served is None:
                return
            self._replica = served
        result = result_of(answer.status, answer.headers)
        if answer.status == 401 or not is_status_of_engine(answer.status):
            result = Result.NOT_THE_ENGINE
        is_answered = answer.status == 200
        tokens = prompt_tokens_of(answer.headers) if is_answered else None
        dispatcher.report_result(request, self._replica, result, served=is_answered, tokens=tokens)

    def _find_url(self, address: str) -> str | None:
        """URL of the replica of the request's fleet at ``address``; None where it has none."""
        row = self._picker.read_table().models.get(self._admission.model)
        replicas = () if row is None or row.fleet != self._admission.fleet else row.replicas
        urls = (each.url for each in replicas if address_of_replica(each.url) == address)
        return self._destinations.get(address) or next(urls, None)

    async def _refuse(self, fault: GatewayError | Refusal | ProtocolFault) -> None:
        """Have Envoy answer with ``fault``; end the stream cleanly where it can answer no more."""
        if isinstance(fault, ProtocolFault):
            log.error("Envoy does not speak the protocol of endpoint pickers: %s", fault)
        if not self._exchange.is_answerable:
            return
        error, reason = self._describe_fault(fault)
        model = self._admission.model
        self._picker.metrics.failures[model] += 1
        self._picker.metrics.requests.labels(
            self._picker.metrics.label_of(model), self._exchange.path if model else "", str(error.status)
        ).inc()
        headers = error.to_headers() | ({DROPPED_REASON: reason} if reason else {})
        await self._answer(error.status, error.to_body(), headers)

    def _describe_fault(self, fault: GatewayError | Refusal | ProtocolFault) -> tuple[GatewayError, str]:
        """The error for the client, and why its request is dropped, if it is."""
        if isinstance(fault, ProtocolFault):
            return GatewayError(500, "InternalServerError", f"The gateway is configured otherwise: {fault}"), ""
        if isinstance(fault, Refusal):
            if fault.status == 503:
                return unavailable_error(str(fault), RETRY_AFTER_SECONDS), _SATURATED
            return GatewayError(fault.status, TYPES[fault.status], str(fault)), ""
        if self._request is None:
            return fault, _SHUTTING_DOWN if fault.status == 503 and self._picker.shutdown.begun else ""
        if fault.status == 429 and self._request.rejection is not None:
            return fault, _EVICTED
        return fault, _DROPPED.get(fault.status, "")

    async def _answer(self, status: int, document: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        if status >= 400:
            request_id = self._exchange.headers.get(REQUEST_ID.lower(), "")
            document = vendor_body(self._exchange.path, status, cast(dict[str, Any], document), request_id)
        headers = {"content-type": "application/json", **{name.lower(): value for name, value in headers.items()}}
        await self._context.write(self._exchange.refuse(status, headers, json.dumps(document).encode()))

    async def _send_replies(self) -> None:
        for reply in self._exchange.pop_replies():
            await self._context.write(reply)
