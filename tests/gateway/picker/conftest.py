"""A picker in this process, and streams to it as Envoy opens them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from envoy.service.ext_proc.v3.external_processor_pb2_grpc import ExternalProcessorStub
from tests.gateway.picker.envoy_messages import headers_set, request_body, request_head

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.picker.limits import PickerLimits
from paternoster_gateway.picker.server import PickerPorts, RunningPicker, run_picker
from paternoster_gateway.process.drain import Shutdown

ADDRESSES = ("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000")
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}'


def route_to(*addresses: str, ready: bool = True, **fields: Any) -> ModelRoute:
    """A row of the routing table with replicas at ``addresses``."""
    replicas = [Replica(name=each, url=f"http://{each}", ready=ready) for each in addresses]
    return ModelRoute(replicas=replicas, **fields)


async def until(holds: Callable[[], object]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


class EnvoyStream:
    """One stream to a picker, message by message."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def send(self, *messages: ProcessingRequest) -> None:
        for message in messages:
            await self.call.write(message)

    async def read(self) -> ProcessingResponse:
        reply = await self.call.read()
        assert reply is not grpc.aio.EOF, f"the stream has ended: {await self.call.code()}"
        return reply

    async def send_request(self, body: bytes = BODY, **head: Any) -> ProcessingResponse:
        """Send a whole request; the first message that answers it."""
        await self.send(request_head(**head), request_body(body, ends=True))
        return await self.read()

    async def choose(self, body: bytes = BODY, **head: Any) -> list[str]:
        """The addresses that a whole request may be sent to, in order; its body is read, too."""
        reply = await self.send_request(body, **head)
        assert reply.WhichOneof("response") == "request_headers", reply
        left = len(body)
        while left:
            left -= len((await self.read()).request_body.response.body_mutation.streamed_response.body)
        return headers_set(reply)["x-gateway-destination-endpoint"].split(",")

    async def ends(self) -> grpc.StatusCode:
        """The status with which the picker ends the stream."""
        assert await self.call.read() is grpc.aio.EOF
        return await self.call.code()


class PickerUnderTest:
    """The picker, and what is published to it."""

    def __init__(self, running: RunningPicker, table: Path, stub: ExternalProcessorStub) -> None:
        self.running = running
        self.table = table
        self._stub = stub
        self._streams: list[EnvoyStream] = []
        """All that were opened: gRPC cancels a call that nothing refers to."""

    @property
    def in_flight(self) -> Mapping[str, int]:
        return self.running.picker.dispatcher.balancer.in_flight

    async def publish(self, **models: ModelRoute) -> None:
        """Make these the models that there are; returns once the picker has read the table."""
        table = RoutingTable(models=models)
        written = self.table.with_suffix(".new")
        written.write_text(table.model_dump_json())
        written.replace(self.table)
        await until(lambda: self.running.source.table.models == table.models)

    def open_stream(self) -> EnvoyStream:
        stream = EnvoyStream(self._stub.Process())
        self._streams.append(stream)
        return stream


StartPicker = Callable[..., Awaitable[PickerUnderTest]]


@pytest.fixture
async def start_picker(tmp_path: Path) -> AsyncIterator[StartPicker]:
    """Start a picker with given limits and a fleet ``m`` of three replicas; it ends with the test."""
    async with AsyncExitStack() as stack:

        async def start(
            limits: PickerLimits | None = None,
            addresses: Sequence[str] = ADDRESSES,
            *,
            engine_key: Path | None = None,
            **fields: Any,
        ) -> PickerUnderTest:
            table = tmp_path / "routes.json"
            table.write_text(RoutingTable(models={"m": route_to(*addresses, **fields)}).model_dump_json())
            ports = PickerPorts("127.0.0.1", 0, 0)
            running = await stack.enter_async_context(
                run_picker(str(table), ports, limits or PickerLimits(), Shutdown(), engine_key=engine_key)
            )
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(running.picks))
            picker = PickerUnderTest(running, table, ExternalProcessorStub(channel))
            await picker.publish(m=route_to(*addresses, **fields))
            return picker

        yield start


@pytest.fixture
async def picker(start_picker: StartPicker) -> PickerUnderTest:
    return await start_picker()
