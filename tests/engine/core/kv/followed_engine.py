"""An engine whose text index is read after each step and compared with what its prefix cache finds."""

from hashlib import blake2b

from tests.engine.core.fake_model import CheckedEngine

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.kv.cache_events import BlocksRemoved, CacheCleared, CacheEvents
from paternoster_engine.core.kv.text_index import MAX_ROW_PIECES, TextIndex
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.text_piece import TextPiece


def digest_of(scope: bytes, tokens: list[int]) -> int:
    return int.from_bytes(blake2b(scope + repr(tokens).encode(), digest_size=8).digest(), "big")


class FollowedEngine(CheckedEngine):
    """Follows what is reported and asks the cache itself about each piece that any request had."""

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        kv = self.scheduler.kv
        kv.pool.events = CacheEvents()
        kv.pool.text_index = self.index = TextIndex(kv.groups, kv.pool.find_block)
        self.reported: dict[int, int] = {}
        self.changes: list[tuple[bool, dict[int, int]]] = []
        """Changes of each step: whether all was removed before, and tokens by digest, 0 for a piece that is gone."""
        self.pieces: dict[int, tuple[bytes, list[int]]] = {}
        """Scope and tokens of each piece."""
        self.interrupted: set[int] = set()
        """Pieces that were not reported yet, or of which a block was removed since they were reported last."""

    def step(self) -> None:
        for request in self.scheduler.waiting:
            if not request.spec.text_pieces:
                object.__setattr__(request.spec, "text_pieces", self.divide(request))
        super().step()
        self.follow()

    def divide(self, request: Request) -> tuple[TextPiece, ...]:
        scope, prompt = request.spec.cache_scope, request.spec.prompt
        pieces = []
        for end in range(1, len(prompt) + 1, 2):
            digest = digest_of(scope, prompt[:end])
            if digest not in self.pieces:
                self.interrupted.add(digest)
            self.pieces[digest] = scope, prompt[: end // self.scheduler.kv.block_size * self.scheduler.kv.block_size]
            pieces.append(TextPiece(end, digest))
        return tuple(pieces)

    def finds(self, digest: int) -> bool:
        """Whether a request for the text of a piece, and one token more, finds all of its rows."""
        scope, tokens = self.pieces[digest]
        if not tokens:
            return False
        spec = RequestSpec("probe", [*tokens, 0], SamplingParams(max_tokens=1), cache_scope=scope)
        kv = self.scheduler.kv
        return kv.num_tokens(kv.find_prefix(Request(spec))) == len(tokens)

    def follow(self) -> None:
        pool = self.scheduler.pool
        assert pool.events is not None
        removed: set[bytes] = set()
        for event in pool.events.drain():
            if isinstance(event, CacheCleared):
                self.interrupted |= set(self.pieces)
            elif isinstance(event, BlocksRemoved):
                removed.update(event.keys)
        cleared, changed = self.index.drain()
        self.changes.append((cleared, dict(changed)))
        if cleared:
            self.reported.clear()
        for digest, tokens in changed.items():
            if tokens:
                self.reported[digest] = tokens
            else:
                self.reported.pop(digest, None)
        found = {digest for digest in self.pieces if self.finds(digest)}
        assert set(self.reported) <= found, "a piece is reported that no request finds"
        assert self.index.num_resident == len(self.reported)
        for digest, tokens in self.reported.items():
            assert tokens == len(self.pieces[digest][1])
        for digest, (scope, tokens) in self.pieces.items():
            if digest not in self.reported and removed & set(self.keys(scope, tokens)):
                self.interrupted.add(digest)
        self.interrupted -= set(self.reported)
        for request in self.scheduler.running:
            computed = request.block_table.num_cached_rows * self.scheduler.kv.block_size
            own = {piece.digest for piece in request.spec.text_pieces if piece.num_tokens <= computed}
            if len(self.pieces) <= MAX_ROW_PIECES:
                assert own & found <= set(self.reported), "a running request's piece is not reported"
        assert self.index.num_rows <= len(pool.cached_keys)

    def keys(self, scope: bytes, tokens: list[int]) -> list[bytes]:
        if not tokens:
            return []
        request = Request(RequestSpec("keys", tokens, SamplingParams(max_tokens=1), cache_scope=scope))
        kv = self.scheduler.kv
        kv.row_key(request, len(tokens) // kv.block_size - 1)
        return request.block_table.row_keys

    def missing(self) -> set[int]:
        """Pieces that a request finds, that are not reported, and of which no block was away since they were."""
        return {d for d in self.pieces if d not in self.reported and self.finds(d)} - self.interrupted
