"""State of the server: whether it loads, serves or drains, and the engine once there is one."""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from paternoster_contract.stats import EngineState, StartPart
from paternoster_contract.stream_journal import StreamId
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.model.pooling import Pooling
from paternoster_engine.model.sampling_defaults import NO_DEFAULTS, SamplingDefaults
from paternoster_engine.server.adapters import AdapterStore, NamedAdapter
from paternoster_engine.server.errors import Draining, Ending, Loading, UnknownModel, WrongTask
from paternoster_engine.server.generation.answer_decoder import AnswerDecoder
from paternoster_engine.server.generation.prompt_encoder import PromptEncoder
from paternoster_engine.server.loop import EngineLoop
from paternoster_engine.server.metrics.histograms import Histograms
from paternoster_engine.server.text_chains.feed import TextChainFeed

if TYPE_CHECKING:  # torch is loaded with the model
    from paternoster_engine.model.adapters.lora_adapter import LoraAdapter


@dataclass(frozen=True)
class ServedModel:
    """A loaded model: its fixed facts, and the parts through which its prompts and answers pass."""

    name: str
    vocab_size: int
    loop: EngineLoop
    prompts: PromptEncoder
    answers: AnswerDecoder
    histograms: Histograms
    registry: CollectorRegistry
    aliases: tuple[str, ...] = ()
    """Names beside ``name`` that clients may use; answers and metrics have ``name``."""
    fingerprint: str = ""
    """Fingerprint that engines of one version, model and way to compute have in common."""
    pooling: Pooling | None = None
    """How a model that embeds makes vectors; None for one that generates."""
    sampling_defaults: SamplingDefaults = NO_DEFAULTS
    """For requests that leave them out."""
    start_seconds: Mapping[StartPart, float] = field(default_factory=dict)
    """Seconds of each part of the start."""
    text_chains: TextChainFeed | None = None
    """Which text is cached, for gateways; None where no gateway may read it."""
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the engine admits nothing."""
    adapters: AdapterStore | None = None
    """Further names, each of the model with an adapter; None where there can be none."""
    adapter: NamedAdapter | None = None
    """Adapter that a client asked for; None for the model as it is."""

    @property
    def records_texts(self) -> bool:
        """Whether a gateway reads which text is cached."""
        return self.text_chains is not None and self.text_chains.is_read

    @property
    def names(self) -> tuple[str, ...]:
        return self.name, *self.aliases

    def with_adapter(self, name: str) -> "ServedModel":
        """The model with the adapter ``name``, which answers have; raises :class:`UnknownModel`."""
        if self.adapters is None:
            raise UnknownModel(name)
        adapter = self.adapters.find_adapter(name)
        return replace(self, name=name, fingerprint=adapter.mark_fingerprint(self.fingerprint), adapter=adapter)

    async def acquire_adapter(self) -> "LoraAdapter | None":
        """Return the adapter of a request's rows, once it is in memory; raises :class:`AdapterUnavailable`."""
        if self.adapters is None or self.adapter is None:
            return None
        return await self.adapters.acquire(self.adapter)

    @property
    def scheduler(self) -> Scheduler:
        """Owned by the loop's thread: here only single numbers may be read of it."""
        return self.loop.engine.scheduler

    @property
    def max_model_len(self) -> int:
        return self.prompts.max_model_len

    def warm_up(self) -> None:
        """Start the processes that render and try grammars, and find out what the template reads.

        Waits, and raises nothing.
        """
        if self.pooling is None:
            self.answers.grammars.warm_up()
        self.prompts.warm_up()

    def close(self) -> None:
        """End what reads texts; the loop is ended by itself."""
        if self.text_chains is not None:
            self.text_chains.close()
        self.prompts.close()
        self.answers.grammars.close()


class ServerState:
    """One per process."""

    def __init__(self, *, stall_timeout: float = 60.0) -> None:
        """``stall_timeout``: seconds without a tick of the engine loop after which the engine counts as hung.

        It holds for the first step of a size; for others :class:`StallLimit` has a shorter or longer limit.
        """
        self.stall_timeout = stall_timeout
        self.instance = uuid.uuid4().hex
        self.started_at = time.time()
        self.in_flight = 0
        """API calls being answered."""
        self._phase = EngineState.LOADING
        self._ending = False
        self._served: ServedModel | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def phase(self) -> EngineState:
        return self._phase

    @property
    def loading(self) -> bool:
        return self._phase is EngineState.LOADING

    @property
    def served(self) -> ServedModel:
        """Raises :class:`Loading` before there is one."""
        if self._served is None:
            raise Loading
        return self._served

    @property
    def healthy(self) -> bool:
        """False once the engine loop hangs or is gone; a model that loads is healthy."""
        if self._served is None:
            return True
        loop = self._served.loop
        limit = loop.engine.stall_limit.seconds
        return loop.alive and loop.last_tick_age <= (self.stall_timeout if limit is None else limit)

    def encode_progress(self, stream_id: StreamId) -> tuple[str, Sequence[bytes]]:
        """The model's fingerprint, and the lines of a call's journal since the last time."""
        if self._served is None:
            return "", ()
        return self._served.fingerprint, self._served.answers.unanswered.encode_progress(stream_id)

    def serve(self, served: ServedModel) -> None:
        """The model is loaded; requests are admitted from now on."""
        self._served = served
        self._phase = EngineState.READY

    def drain(self) -> None:
        """Admit no more; what runs goes on. Raises :class:`Loading` before there is an engine."""
        if self.loading:
            raise Loading
        self._phase = EngineState.DRAINING
        self.served.draining.set()

    def admit(self) -> None:
        """Undo :meth:`drain`; raises :class:`Ending` after :meth:`begin_end`, and :class:`Loading`."""
        if self.loading:
            raise Loading
        if self._ending:
            raise Ending
        self._phase = EngineState.READY
        self.served.draining.clear()

    def begin_end(self) -> None:
        """Drain for good: the process ends when what runs has ended."""
        self._ending = True
        if self._served is not None and self._served.text_chains is not None:
            self._served.text_chains.close()
        self.drain()

    def find_model(self, model: str | None) -> ServedModel:
        """The engine that serves ``model`` (None or empty: the one there is); raises :class:`UnknownModel`."""
        served = self.served
        return served if not model or model in served.names else served.with_adapter(model)

    def find_target(self, model: str | None, *, embeds: bool = False) -> ServedModel:
        """The engine for a new request to ``model``, which generates, or ``embeds``.

        Raises :class:`WrongTask` and :class:`Draining` besides.
        """
        served = self.find_model(model)
        if embeds != (served.pooling is not None):
            does = "generates; it does not embed" if embeds else "embeds; it does not generate"
            raise WrongTask(f"This model {does}.")
        if self._phase is EngineState.DRAINING:
            raise Draining
        return served

    def call_begins(self) -> None:
        self.in_flight += 1
        self._idle.clear()

    def call_ended(self) -> None:
        self.in_flight -= 1
        if self.in_flight == 0:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Returns once no API call is being answered."""
        await self._idle.wait()
