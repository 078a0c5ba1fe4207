"""A subscriber with ZMQ's own library reads every batch, replays what it missed, and sees what was lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq

from paternoster_contract.settings.kv_events import KVEventsConfig
from paternoster_engine.core.kv.cache_events import BlocksRemoved, BlocksStored, CacheCleared, CacheEvent
from paternoster_engine.kv_events.messages import AllBlocksCleared, BlockRemoved, BlockStored, decode_batch
from paternoster_engine.kv_events.publisher import END_OF_REPLAY, KVEventPublisher

BLOCK_SIZE = 2
WAIT_MS = 20_000
STORED = BlocksStored((b"a" * 16, b"b" * 16), b"p" * 16, (1, 2, 3, 4), b"scope", 1)
EVENTS: list[CacheEvent] = [STORED, BlocksRemoved((b"a" * 16,), 1), CacheCleared()]


@contextmanager
def opened(tmp_path: Path, **fields: object) -> Iterator[KVEventPublisher]:
    """A publisher that has not begun."""
    sockets = {"endpoint": f"ipc://{tmp_path}/events", "replay_endpoint": f"ipc://{tmp_path}/replay"}
    config = KVEventsConfig.model_validate({"enable_kv_cache_events": True, "topic": "kv@pod", **sockets, **fields})
    publisher = KVEventPublisher(config)
    try:
        yield publisher
    finally:
        publisher.close()


@contextmanager
def published(
    tmp_path: Path, num_groups: int = 1, **fields: object
) -> Iterator[tuple[KVEventPublisher, "zmq.Socket[bytes]", int]]:
    """A publisher that sends, a subscriber that it sends to, and the number of the next batch."""
    with opened(tmp_path, **fields) as publisher, zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        publisher.start(BLOCK_SIZE, num_groups)
        subscriber.setsockopt(zmq.RCVTIMEO, WAIT_MS)
        subscriber.subscribe("kv@")
        subscriber.connect(publisher.endpoint)
        number = 0
        # What is sent before the subscription arrives is not for this subscriber.
        while not subscriber.poll(20):
            publisher.publish([CacheCleared()])
            number += 1
            assert number < WAIT_MS / 20
        while int.from_bytes(subscriber.recv_multipart()[1], "big") < number - 1:
            pass
        yield publisher, subscriber, number


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_every_address_is_one_of_ipv4_or_ipv6(tmp_path: Path, address: str) -> None:
    every = "tcp://*:*"
    with opened(tmp_path, endpoint=every, replay_endpoint=None) as publisher, zmq.Context() as context:
        port = publisher.endpoint.rpartition(":")[2]
        with context.socket(zmq.SUB) as subscriber:
            subscriber.setsockopt(zmq.IPV6, 1)
            subscriber.setsockopt(zmq.RCVTIMEO, WAIT_MS)
            subscriber.subscribe("kv@")
            subscriber.connect(f"tcp://{address}:{port}")
            publisher.start(BLOCK_SIZE, 1)
            for _ in range(WAIT_MS // 20):
                publisher.publish([CacheCleared()])
                if subscriber.poll(20):
                    break
            assert subscriber.recv_multipart()[0] == b"kv@pod"


def replay(publisher: KVEventPublisher, first: int) -> list[list[bytes]]:
    """The frames of each kept batch from number ``first`` on, as a DEALER gets them."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.RCVTIMEO, WAIT_MS)
        dealer.connect(publisher.replay_endpoint)
        dealer.send_multipart((b"", first.to_bytes(8, "big")))
        frames = []
        while (answer := dealer.recv_multipart())[2] != END_OF_REPLAY:
            frames.append(answer)
        assert answer == [b"", b"", END_OF_REPLAY, b""]
        return frames


def test_replay_has_what_was_published_before_it_was_requested(tmp_path: Path) -> None:
    """Also where the publisher's thread gets both at once, as it does where other processes have the cores."""
    with opened(tmp_path) as publisher, zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        for _ in range(3):
            publisher.publish(EVENTS)
        dealer.setsockopt(zmq.RCVTIMEO, WAIT_MS)
        dealer.connect(publisher.replay_endpoint)
        dealer.send_multipart((b"", bytes(8)))
        replay = publisher._replay
        assert replay is not None
        assert replay.poll(WAIT_MS)
        publisher.start(BLOCK_SIZE, 1)
        numbers = []
        while (frames := dealer.recv_multipart())[2] != END_OF_REPLAY:
            numbers.append(int.from_bytes(frames[2], "big"))
    assert numbers == [0, 1, 2]


def test_batch_is_read_by_a_subscriber_as_it_was_published(tmp_path: Path) -> None:
    with published(tmp_path, num_groups=2) as (publisher, subscriber, number):
        publisher.publish(EVENTS)
        topic, sequence, payload = subscriber.recv_multipart()
    assert (topic, sequence) == (b"kv@pod", number.to_bytes(8, "big"))
    batch = decode_batch(payload)
    assert batch.events == [
        BlockStored(
            [b"a" * 16, b"b" * 16],
            b"p" * 16,
            [1, 2, 3, 4],
            BLOCK_SIZE,
            None,
            "GPU",
            None,
            extra_keys=[(b"scope",), (b"scope",)],
            group_idx=1,
        ),
        BlockRemoved([b"a" * 16], "GPU", group_idx=1),
        AllBlocksCleared(),
    ]


def test_payload_is_an_array_with_maps_and_what_is_unset_is_left_out(tmp_path: Path) -> None:
    with published(tmp_path) as (publisher, subscriber, _):
        publisher.publish([BlocksStored((b"a" * 16,), None, (1, 2), b"", 0), BlocksRemoved((b"a" * 16,), 0)])
        _, _, payload = subscriber.recv_multipart()
    time, events, rank = msgspec.msgpack.decode(payload)
    assert isinstance(time, float)
    assert rank == 0
    assert events == [
        {
            "type": "BlockStored", "block_hashes": [b"a" * 16], "parent_block_hash": None, "token_ids": [1, 2],
            "block_size": 2, "lora_id": None, "medium": "GPU", "lora_name": None,
        },
        {"type": "BlockRemoved", "block_hashes": [b"a" * 16], "medium": "GPU"},
    ]  # fmt: skip


def test_missed_batches_are_replayed_as_far_as_they_are_kept(tmp_path: Path) -> None:
    with published(tmp_path, buffer_steps=3) as (publisher, subscriber, number):
        for _ in range(5):
            publisher.publish([CacheCleared()])
        sent = [subscriber.recv_multipart() for _ in range(5)]
        assert [int.from_bytes(sequence, "big") for _, sequence, _ in sent] == [number + i for i in range(5)]
        assert replay(publisher, number + 3) == [[b"", *frames] for frames in sent[3:]]
        assert replay(publisher, 0) == [[b"", *frames] for frames in sent[2:]]
        assert replay(publisher, number + 5) == []


def test_malformed_replay_request_is_ignored(tmp_path: Path) -> None:
    with opened(tmp_path) as publisher, zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        publisher.start(BLOCK_SIZE, num_groups=1)
        dealer.connect(publisher.replay_endpoint)
        for frames in ([b"x"], [b"", b"short"], [b"", bytes(8), b"more"], [bytes(1 << 20)]):
            dealer.send_multipart(frames)
        assert replay(publisher, 0) == []


def test_batches_beyond_the_queue_are_a_gap_in_the_numbers(tmp_path: Path) -> None:
    with opened(tmp_path, max_queue_size=2) as publisher:
        for _ in range(4):
            publisher.publish([CacheCleared()])
        publisher.start(BLOCK_SIZE, num_groups=1)
        while len(replay(publisher, 0)) < 2:
            pass
        publisher.publish([CacheCleared()])
        while len(frames := replay(publisher, 0)) < 3:
            pass
    assert [int.from_bytes(sequence, "big") for _, _, sequence, _ in frames] == [0, 1, 4]


def test_endpoint_in_use_is_named(tmp_path: Path) -> None:
    config = KVEventsConfig(enable_kv_cache_events=True, endpoint="tcp://127.0.0.1:*", replay_endpoint="ipc:///no/such")
    with pytest.raises(
        ValueError, match=r"--kv-events-config is \{.*/no/such.*: cannot open its endpoint: No such file"
    ):
        KVEventPublisher(config)
