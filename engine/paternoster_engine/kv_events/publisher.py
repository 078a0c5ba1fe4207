"""Publishes batches of cache events over ZMQ, and replays the last of them: vLLM's PUB and ROUTER sockets."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import count

import zmq

from paternoster_contract.settings.kv_events import KVEventsConfig
from paternoster_engine.core.kv.cache_events import CacheEvent
from paternoster_engine.kv_events.messages import encode_batch

log = logging.getLogger(__name__)

END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)
"""The sequence number after the last batch of a replay."""
MAX_REQUEST_BYTES = 64
"""Limit for a frame of a replay request; a peer that sends a larger one is disconnected."""
CLOSE_SECONDS = 1.0
"""For the last batches, at the end of the process."""
WAKE = "inproc://kv-events-wake"


class KVEventPublisher:
    """Sockets that are bound at once, and a thread that sends; :meth:`publish` may be called from one other thread.

    A batch is three frames: topic, sequence number (8 bytes, big-endian), payload. A replay request is an empty frame
    and a sequence number; the answer is each batch from there on that is still kept, then :data:`END_OF_REPLAY`.
    """

    def __init__(self, config: KVEventsConfig) -> None:
        """Raises ``ValueError`` naming the flag where an endpoint cannot be had."""
        self._topic = config.topic.encode()
        self._waiting: deque[tuple[int, Sequence[CacheEvent], float]] = deque()
        self._max_waiting = config.max_queue_size
        self._replayable: deque[tuple[bytes, bytes]] = deque(maxlen=config.buffer_steps)
        self._numbers = count()
        self._lost = 0
        self._context = zmq.Context()
        self._events = self._context.socket(zmq.PUB)
        self._events.set_hwm(config.hwm)
        self._replay: zmq.Socket[bytes] | None = None
        self._woken = self._context.socket(zmq.PULL)
        self._woken.bind(WAKE)
        self._wake = self._context.socket(zmq.PUSH)
        self._wake.connect(WAKE)
        try:
            self.endpoint = _open_endpoint(self._events, config.endpoint)
            if config.replay_endpoint is not None:
                self._replay = self._context.socket(zmq.ROUTER)
                self._replay.set_hwm(config.buffer_steps + 1)
                self._replay.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_BYTES)
                self.replay_endpoint = _bind_endpoint(self._replay, config.replay_endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise ValueError(f"--kv-events-config is {config}: cannot open its endpoint: {error}") from error
        self._block_size = self._num_groups = 0
        self._thread = threading.Thread(target=self._run, name="kv-events", daemon=True)

    def start(self, block_size: int, num_groups: int) -> None:
        """Begin to send; ``num_groups``: layer groups of the model."""
        self._block_size, self._num_groups = block_size, num_groups
        self._thread.start()

    def publish(self, events: Sequence[CacheEvent]) -> None:
        """Queue one batch. One that finds the queue full is lost: its number is left out, which subscribers see."""
        number = next(self._numbers)
        if len(self._waiting) >= self._max_waiting:
            if self._lost == 0:
                log.warning("kv events are lost: %d batches wait for the publisher", self._max_waiting)
            self._lost += 1
            return
        self._waiting.append((number, events, time.time()))
        if len(self._waiting) == 1:
            self._wake.send(b"", zmq.DONTWAIT)

    def close(self) -> None:
        """Send what waits, for :data:`CLOSE_SECONDS` at most, and close the sockets."""
        if self._thread.is_alive():
            self._wake.send(b"close", zmq.DONTWAIT)
            self._thread.join(CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._context.destroy(linger=round(1000 * CLOSE_SECONDS))

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._woken, zmq.POLLIN)
        if self._replay is not None:
            poller.register(self._replay, zmq.POLLIN)
        closing = False
        while not closing:
            ready = dict(poller.poll())
            if self._woken in ready:
                closing = self._woken.recv() == b"close"
            # Before a replay: its request may have come after these, from a peer that has an answer of the engine.
            while self._waiting:
                self._send(*self._waiting.popleft())
            if self._replay is not None and self._replay in ready:
                self._answer_replay(self._replay)

    def _send(self, number: int, events: Sequence[CacheEvent], when: float) -> None:
        payload = encode_batch(events, self._block_size, self._num_groups, when)
        sequence = number.to_bytes(8, "big")
        self._events.send_multipart((self._topic, sequence, payload))
        if self._replay is not None:
            self._replayable.append((sequence, payload))

    def _answer_replay(self, replay: "zmq.Socket[bytes]") -> None:
        peer, *request = replay.recv_multipart()
        if len(request) != 2 or len(request[1]) != 8:
            log.warning("a replay request of %d frames is ignored: must be an empty one and 8 bytes", len(request))
            return
        for sequence, payload in self._replayable:
            if sequence >= request[1]:
                replay.send_multipart((peer, b"", self._topic, sequence, payload))
        replay.send_multipart((peer, b"", b"", END_OF_REPLAY, b""))


def _open_endpoint(socket: "zmq.Socket[bytes]", endpoint: str) -> str:
    """Bind or connect, as vLLM does; returns the endpoint with its port. Raises ``zmq.ZMQError``."""
    if "*" in endpoint or "::" in endpoint or endpoint.startswith("ipc://"):
        return _bind_endpoint(socket, endpoint)
    socket.connect(endpoint)
    return endpoint


def _bind_endpoint(socket: "zmq.Socket[bytes]", endpoint: str) -> str:
    # Without it ``*`` is every address of IPv4 alone; with it of both, or of IPv4 where there is no IPv6.
    socket.setsockopt(zmq.IPV6, 1)
    socket.bind(endpoint)
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)
