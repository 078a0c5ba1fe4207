"""In vLLM's engine core: ties texts of prompts to the blocks of its prefix cache, and records what changes of them."""

import logging
import secrets
import struct
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from paternoster_contract.text_chains.stream import MAX_FRAME_PIECES, Changes, encode_frame, encode_snapshot
from paternoster_vllm.engine_core import Unsupported
from paternoster_vllm.text_chains import PIECES
from paternoster_vllm.text_chains.text_index import TextIndex, UntiedPrompt

log = logging.getLogger(__name__)

MAX_REPLAY_BYTES = 2**20
"""Bytes of the last changes, for readers that have those before."""
SPECS = ("FullAttentionSpec", "MLAAttentionSpec")
"""Layers whose cached blocks are found from the first to the last; others, such as windows, need more than these."""
GROUP_BYTES = 4
"""Bytes with which a key of the pool names the group of layers, behind the block's hash."""
_WATCH = "_paternoster_block_watch"
_PIECE = struct.Struct(">IQ")


def pack_pieces(pieces: Sequence[tuple[int, int]]) -> bytes:
    """Tokens and digest of each."""
    return b"".join(_PIECE.pack(*piece) for piece in pieces)


def unpack_pieces(data: Any) -> list[tuple[int, int]]:
    """Empty for anything that :func:`pack_pieces` did not write."""
    return list(_PIECE.iter_unpack(data)) if isinstance(data, bytes) and not len(data) % _PIECE.size else []


class Replay:
    """The last changes as frames of the stream, each with the number after the last one's."""

    def __init__(self, sequence: int = 0) -> None:
        self.sequence = sequence
        """Number of the last frame, or of what there was before the first."""
        self._frames: deque[bytes] = deque()
        self._bytes = 0

    def add_changes(self, changes: Changes) -> None:
        frame = encode_frame(changes)
        self.sequence = changes.sequence
        self._frames.append(frame)
        self._bytes += len(frame)
        while self._bytes > MAX_REPLAY_BYTES:
            self._bytes -= len(self._frames.popleft())

    def has_after(self, number: int) -> bool:
        """Whether every frame behind ``number`` is kept."""
        return self.sequence - len(self._frames) <= number <= self.sequence

    def list_after(self, number: int) -> bytes:
        return b"".join(islice(self._frames, number - self.sequence + len(self._frames), None))


class ChangeLog:
    """Numbers the changes of an index for API servers."""

    def __init__(self, index: TextIndex) -> None:
        self.instance = secrets.token_hex(16)
        self._index = index
        self._replay = Replay()

    def read(self, instance: str, after: int) -> dict[str, Any]:
        """The frames that follow number ``after`` of ``instance``; where these are not known, those of a snapshot."""
        self._number_changes()
        replay = self._replay
        resumes = instance == self.instance and replay.has_after(after)
        frames = replay.list_after(after) if resumes else b"".join(encode_snapshot(self._index.pieces, replay.sequence))
        return {"instance": self.instance, "resumes": resumes, "frames": frames, "block_size": self._index.block_size}

    def _number_changes(self) -> None:
        cleared, changed = self._index.take_changes()
        if not cleared and not changed:
            return
        items = list(changed.items())
        for start in range(0, max(1, len(items)), MAX_FRAME_PIECES):
            part = items[start : start + MAX_FRAME_PIECES]
            stored = {digest: tokens for digest, tokens in part if tokens}
            removed = [digest for digest, tokens in part if not tokens]
            changes = Changes(self._replay.sequence + 1, stored, removed, cleared and start == 0)
            self._replay.add_changes(changes)


class BlockWatch:
    """Follows the block pool of one scheduler, and the prompts that it schedules."""

    def __init__(self, scheduler: Any) -> None:
        """Raises :class:`Unsupported`, or ``AttributeError`` for a scheduler unlike that of vLLM 0.32."""
        groups = scheduler.kv_cache_config.kv_cache_groups
        specs = [type(group.kv_cache_spec).__name__ for group in groups]
        if len(specs) != 1 or specs[0] not in SPECS:
            raise Unsupported(f"the layers' caches are {', '.join(specs)[:200]}: must be one of {', '.join(SPECS)}")
        self._pool = scheduler.kv_cache_manager.block_pool
        if not self._pool.enable_caching:
            raise Unsupported("the prefix cache is off")
        if self._pool.hash_block_size != scheduler.block_size:
            raise Unsupported(f"blocks of {scheduler.block_size} tokens have hashes of {self._pool.hash_block_size}")
        self._index = TextIndex(scheduler.block_size)
        self.log = ChangeLog(self._index)
        self._requests = scheduler.requests
        self._pending: dict[str, UntiedPrompt] = {}
        """Prompts that are not computed to their end, by request."""
        self.fault = ""
        """Fault for which nothing is recorded any more; empty while there is none."""
        self._follow_blocks()
        self._follow_method(self._pool, "reset_prefix_cache", self._reset_index)
        self._follow_method(scheduler, "schedule", self._read_step)

    def _follow_method(self, owner: Any, name: str, follow: Callable[..., None]) -> None:
        """Call ``follow`` with the result and the arguments of each call of a method; its failure ends the recording.

        The method itself does what it did: texts in the cache are no reason for a step to fail.
        """
        original = getattr(owner, name)

        def call_followed(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if not self.fault:
                try:
                    follow(result, *args, **kwargs)
                except Exception as error:
                    self.fault = f"{name}: {type(error).__name__}: {str(error)[:200]}"
                    log.warning("paternoster_vllm: text chains are recorded no more: %s", self.fault)
            return result

        setattr(owner, name, call_followed)

    def _follow_blocks(self) -> None:
        blocks = self._pool.cached_block_hash_to_block

        def remove_block(block: Any, key: bytes, *_: Any) -> None:
            if block is not None and blocks.get_one_block(key) is None:
                self._index.remove_key(key[:-GROUP_BYTES])

        self._follow_method(blocks, "pop", remove_block)

    def _reset_index(self, was_reset: Any, *_: Any, **__: Any) -> None:
        if was_reset:
            self._index.clear()
            self._follow_blocks()

    def _read_step(self, output: Any, *_: Any, **__: Any) -> None:
        for each in output.scheduled_new_reqs:
            params = getattr(self._requests.get(each.req_id), "sampling_params", None)
            if pieces := unpack_pieces((getattr(params, "extra_args", None) or {}).get(PIECES)):
                self._pending[each.req_id] = UntiedPrompt(pieces)
        for request_id in self._pending.keys() & output.num_scheduled_tokens.keys():
            self._attach_pieces(request_id, self._pending[request_id])
        for request_id in output.finished_req_ids:
            self._pending.pop(request_id, None)

    def _attach_pieces(self, request_id: str, prompt: UntiedPrompt) -> None:
        request = self._requests.get(request_id)
        if request is None or (
            self._index.attach_pieces(request.block_hashes, prompt, self._is_cached)
            or request.num_computed_tokens >= prompt.pieces[-1][0]
        ):
            del self._pending[request_id]

    def _is_cached(self, block_hash: bytes) -> bool:
        return self._pool.get_cached_block(block_hash, [0]) is not None


def read_text_chains(core: Any, instance: str, after: int) -> dict[str, Any]:
    """The method of the engine core: what :meth:`ChangeLog.read` returns, or what this vLLM lacks as ``unsupported``.

    Its first call begins to record.
    """
    watch = getattr(core, _WATCH, None)
    try:
        if watch is None:
            watch = BlockWatch(core.scheduler)
            setattr(core, _WATCH, watch)
        if watch.fault:
            raise Unsupported(watch.fault)
        return watch.log.read(instance, after)
    except (Unsupported, AttributeError) as error:
        return {"unsupported": str(error)}
