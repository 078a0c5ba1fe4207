"""What a client asked for one prompt; nothing of it changes while the request is served."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paternoster_contract.access.identity import Lane
from paternoster_engine.core.config import TenantLimits
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.text_piece import TextPiece


class RequestAdapter(Protocol):
    """Adapter of a request's rows. Only the runner applies it."""

    @property
    def digest(self) -> bytes:
        """Digest that is equal for adapters that add the same."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RequestSpec:
    """A prompt, how its tokens are chosen, and its tenant. Times are of the clock that stamps ``arrival``."""

    request_id: str
    prompt: list[int]
    params: SamplingParams
    arrival: float = 0.0
    eos_token_ids: tuple[int, ...] = ()
    ends_at_stop_tokens: bool = True
    """Whether the scheduler ends it at ``params.stop_token_ids``; else the reader of its output does."""
    seed: int = 0
    """Key of the stateless sampler: ``params.seed``, or one drawn at arrival."""
    priority: int = 0
    """Class: lower is served first, as in vLLM. Below 0 may use the reserved slots."""
    lane: Lane = Lane.ONLINE
    """The lane that its sender proved to be in; no body decides it."""
    tenant: str = ""
    """Tenant that fair shares and quotas count the request for."""
    limits: TenantLimits | None = None
    """The tenant's own weight and quotas; None for the engine's settings."""
    cache_scope: bytes = b""
    """Prefix-cache blocks are found by requests of the same scope alone; empty, or a digest of 16 bytes."""
    adapter: RequestAdapter | None = None
    """Adapter of all its rows, with its digest in ``cache_scope``; None for the model as it is."""
    deadline: float | None = None
    """Time after which the request is no longer worth a prefill."""
    text_pieces: Sequence[TextPiece] = ()
    """Pieces of the text that the prompt was made from, in order; empty where none are reported for it."""
    second_text: int | None = None
    """Index of the token at which the second of two compared texts begins; None for one text."""
