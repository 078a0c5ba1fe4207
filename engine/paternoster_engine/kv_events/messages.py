"""The events of the prefix cache in vLLM's wire format: msgpack, a batch an array, an event a map with its type.

Fields as in vLLM 0.32 (vllm/distributed/kv_events.py); those without a value here that its decoder requires are nil.
"""

from collections.abc import Sequence

import msgspec

from paternoster_engine.core.kv.cache_events import BlocksRemoved, BlocksStored, CacheEvent

MEDIUM = "GPU"
"""The tier that the engine computes in: vLLM's name for it on every device, its CPU runner included."""


class BlockStored(msgspec.Struct, omit_defaults=True, tag=True, frozen=True):
    block_hashes: list[bytes]
    parent_block_hash: bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str
    lora_name: str | None
    extra_keys: list[tuple[bytes]] | None = None
    """For each block the digest of the tenant and salt that alone find it."""
    group_idx: int | None = None


class BlockRemoved(msgspec.Struct, omit_defaults=True, tag=True, frozen=True):
    block_hashes: list[bytes]
    medium: str
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag=True, frozen=True):
    pass


Event = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, array_like=True, frozen=True):
    """What one step changed."""

    ts: float
    """Seconds since the epoch."""
    events: list[Event]
    data_parallel_rank: int = 0


def encode_batch(events: Sequence[CacheEvent], block_size: int, num_groups: int, time: float) -> bytes:
    """One batch; ``group_idx`` is left out where the model has one layer group."""
    return _ENCODER.encode(EventBatch(time, [_to_message(event, block_size, num_groups) for event in events]))


def decode_batch(payload: bytes) -> EventBatch:
    """Raises ``msgspec.DecodeError`` or ``msgspec.ValidationError`` for anything else."""
    return _DECODER.decode(payload)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(EventBatch)


def _to_message(event: CacheEvent, block_size: int, num_groups: int) -> Event:
    match event:
        case BlocksStored():
            return BlockStored(
                list(event.keys),
                event.parent,
                list(event.tokens),
                block_size,
                None,
                MEDIUM,
                None,
                extra_keys=[(event.scope,)] * len(event.keys) if event.scope else None,
                group_idx=event.group if num_groups > 1 else None,
            )
        case BlocksRemoved():
            return BlockRemoved(list(event.keys), MEDIUM, group_idx=event.group if num_groups > 1 else None)
        case _:
            return AllBlocksCleared()
