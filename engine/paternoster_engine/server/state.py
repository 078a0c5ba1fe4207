"""State of the server: whether it loads, serves or drains, and the engine once there is one."""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from prometheus_client import CollectorRegistry

from paternoster_contract.stats import EngineState, StartPart
from paternoster_contract.stream_journal import StreamId
from paternoster_engine.chat.errors import RendererLost
from paternoster_engine.chat.late_system import carries_late_system
from paternoster_engine.chat.renderer import Renderer
from paternoster_engine.chat.support import TemplateSupport, detect_template_support
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.model.pooling import Pooling
from paternoster_engine.model.sampling_defaults import NO_DEFAULTS, SamplingDefaults
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.lazy import SeenTokens
from paternoster_engine.server.continuation.unanswered import UnansweredCalls
from paternoster_engine.server.errors import Draining, Ending, Loading, UnknownModel, WrongTask
from paternoster_engine.server.generation.grammar_work import GrammarWork
from paternoster_engine.server.generation.text_work import TextWork
from paternoster_engine.server.loop import EngineLoop
from paternoster_engine.server.metrics.histograms import Histograms
from paternoster_engine.server.parsers.formats import AnswerFormat
from paternoster_engine.server.text_chains.feed import TextChainFeed


class PromptTemplate:
    """A chat template and what it supports; the first use of a property waits for a process, so call it in a thread."""

    def __init__(self, source: str | None, variables: Mapping[str, str], longest: int) -> None:
        """``source`` and ``variables`` as of :class:`Renderer`; ``longest``: bytes of the longest prompt."""
        self.source = source or ""
        self.renderer = Renderer(source, variables)
        self._longest = longest

    @cached_property
    def reads(self) -> TemplateSupport:
        """What the template shows of tools; raises :class:`RendererLost`."""
        return detect_template_support(self.renderer)

    @cached_property
    def carries_late_system(self) -> bool:
        """Whether the template writes late system messages in their place; raises :class:`RendererLost`."""
        return carries_late_system(
            lambda messages, begun: self.renderer.render(messages, self._longest, add_generation_prompt=begun)
        )

    @property
    def reads_developer(self) -> bool:
        """Whether the template mentions the role ``developer``, as that of gpt-oss does."""
        return "developer" in self.source


@dataclass(frozen=True)
class ServedModel:
    """A loaded model and the loop that runs it."""

    name: str
    tokenizer: Tokenizer
    vocab_size: int
    loop: EngineLoop
    histograms: Histograms
    registry: CollectorRegistry
    parse_special_tokens: bool = False
    """Whether control tokens that are spelled in messages are those tokens."""
    disable_any_whitespace: bool = False
    """Whether JSON of every grammar has no white space between its tokens."""
    tool_parser: str = "auto"
    tool_template: str = "auto"
    reasoning_parser: str = "auto"
    fingerprint: str = ""
    """The same for engines of one version, model and way to compute."""
    pooling: Pooling | None = None
    """How a model that embeds makes vectors; None for one that generates."""
    sampling_defaults: SamplingDefaults = NO_DEFAULTS
    """For requests that leave them out."""
    start_seconds: Mapping[StartPart, float] = field(default_factory=dict)
    """Of each part of the start."""
    text_chains: TextChainFeed | None = None
    """Which text is cached, for gateways; None where no gateway may read it."""
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the engine admits nothing."""
    unanswered: UnansweredCalls = field(default_factory=UnansweredCalls)
    aliases: tuple[str, ...] = ()
    """Names beside ``name`` that clients may use; answers and metrics have ``name``."""

    @property
    def records_texts(self) -> bool:
        """Whether a gateway reads which text is cached."""
        return self.text_chains is not None and self.text_chains.is_read

    @property
    def names(self) -> tuple[str, ...]:
        return self.name, *self.aliases

    @property
    def scheduler(self) -> Scheduler:
        """Owned by the loop's thread: here only single numbers may be read of it."""
        return self.loop.engine.scheduler

    @property
    def max_model_len(self) -> int:
        return self.scheduler.config.max_model_len

    @cached_property
    def longest_request(self) -> int:
        """Prompt plus output of the longest request that is admitted; a small KV pool allows less than the model."""
        config, groups = self.scheduler.config, self.scheduler.kv.groups
        # The last token sampled is never computed and needs no place in the pool.
        return min(config.max_model_len, groups.find_longest_sequence(config.num_blocks, config.max_model_len) + 1)

    @cached_property
    def longest_text(self) -> int:
        """Bytes of the longest text that the context could hold."""
        return self.tokenizer.most_bytes(self.max_model_len)

    @cached_property
    def text_work(self) -> TextWork:
        return TextWork(self.longest_text)

    @cached_property
    def chat_template(self) -> PromptTemplate:
        return self._prompt_template(self.tokenizer.chat_template)

    @cached_property
    def tool_use_template(self) -> PromptTemplate | None:
        """Another one for conversations with tools, where the model has one."""
        source = self.tokenizer.tool_use_template
        return None if source is None else self._prompt_template(source)

    def _prompt_template(self, source: str | None) -> PromptTemplate:
        return PromptTemplate(source, self.tokenizer.special_names, self.longest_text)

    @cached_property
    def answer_format(self) -> AnswerFormat:
        """How the model writes calls of tools and reasoning.

        A model whose template has marks of calls was trained to write those, even if the template shows no tools.
        """
        written = self.template_format
        return self._new_answer_format("hermes") if self.uses_tool_prompt and written.tools is None else written

    @cached_property
    def template_format(self) -> AnswerFormat:
        """The same as its chat template has it, which may have calls of earlier turns and read no tools."""
        return self._new_answer_format(self.tool_parser)

    def _new_answer_format(self, tool_parser: str) -> AnswerFormat:
        template = (self.tokenizer.chat_template or "") + (self.tokenizer.tool_use_template or "")
        return AnswerFormat.find_format(template, self.tokenizer.special_token_id, tool_parser, self.reasoning_parser)

    @cached_property
    def uses_tool_prompt(self) -> bool:
        """Whether :mod:`paternoster_engine.chat.tool_prompt` writes tools: the chat template reads none."""
        allowed = self.tool_template == "auto" and self.tool_parser in ("auto", "hermes")
        return allowed and self.tokenizer.chat_template is not None and not self.reads.tools

    @cached_property
    def reads(self) -> TemplateSupport:
        """What the chat templates show of tools; the first to ask waits for a process to render."""
        other = self.tool_use_template
        return self.chat_template.reads if other is None else self.chat_template.reads._replace(tools=other.reads.tools)

    @cached_property
    def grammars(self) -> GrammarWork:
        return GrammarWork(self.tokenizer, self.histograms, compact=self.disable_any_whitespace)

    @cached_property
    def seen_tokens(self) -> SeenTokens:
        """As the parsers of answers see them."""
        marks = {token: text.encode() for text, token in self.answer_format.special.items()}

        def spell_token(token: int) -> bytes:
            if self.tokenizer.is_special(token):
                return marks.get(token, b"")
            return self.tokenizer.token_bytes(token)

        return SeenTokens(self.tokenizer.largest_id + 1, spell_token)

    def warm_up(self) -> None:
        """Start the processes that render and try grammars, and find out what the template reads.

        Waits, and raises nothing.
        """
        if self.pooling is None:
            self.grammars.warm_up()
        self.chat_template.renderer.warm_up()
        with suppress(RendererLost):
            _ = self.reads

    def close(self) -> None:
        """End what reads texts; the loop is ended by itself."""
        if self.text_chains is not None:
            self.text_chains.close()
        self.text_work.close()
        self.grammars.close()
        for template in (self.chat_template, self.tool_use_template):
            if template is not None:
                template.renderer.close()


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
        return self._served.fingerprint, self._served.unanswered.encode_progress(stream_id)

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
        if model and model not in served.names:
            raise UnknownModel(model)
        return served

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
