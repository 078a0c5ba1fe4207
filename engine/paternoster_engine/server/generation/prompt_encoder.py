"""Encodes conversations and texts as prompts: tokenizer, chat templates, and the threads that use them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from tokenizers import Encoding

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.chat.errors import RendererLost
from paternoster_engine.chat.late_system import carries_late_system
from paternoster_engine.chat.renderer import Renderer
from paternoster_engine.chat.support import TemplateSupport, detect_template_support
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.model.tokenizer import Tokenizer, Truncation
from paternoster_engine.server.generation.text_work import TextWork
from paternoster_engine.server.parsers.formats import AnswerFormat


class PromptTemplate:
    """A chat template and what it supports; the first use of a property waits for a process, so call it in a thread."""

    def __init__(self, source: str | None, variables: Mapping[str, str], longest: int) -> None:
        """``source`` and ``variables`` as of :class:`Renderer`; ``longest``: bytes of the longest prompt."""
        self.source = source or ""
        self.renderer = Renderer(source, variables)
        self._longest = longest

    @cached_property
    def reads(self) -> TemplateSupport:
        """Parts of conversations with tools that the template shows; raises :class:`RendererLost`."""
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


class PromptEncoder:
    """Encodes the prompts of one model."""

    def __init__(self, tokenizer: Tokenizer, scheduler: Scheduler, args: EngineArgs) -> None:
        """``scheduler``: only its limits are read. ``args``: which parsers and tool prompt are to be used."""
        config, groups = scheduler.config, scheduler.kv.groups
        self.tokenizer = tokenizer
        self.max_model_len = config.max_model_len
        # The last token sampled is never computed and needs no place in the pool.
        longest = groups.find_longest_sequence(config.num_blocks, config.max_model_len) + 1
        self.longest_request = min(config.max_model_len, longest)
        """Prompt plus output of the longest request that is admitted; a small KV pool allows less than the model."""
        self.work = TextWork(tokenizer.most_bytes(config.max_model_len))
        self.parse_special_tokens = args.parse_special_tokens
        """Whether control tokens that are spelled in messages are those tokens."""
        self.chat_template = self._new_template(tokenizer.chat_template)
        other = tokenizer.tool_use_template
        self.tool_use_template = None if other is None else self._new_template(other)
        """Another one for conversations with tools, where the model has one."""
        self._args = args
        self.template_format = self.find_format(args.tool_parser)
        """Format of calls and reasoning in the templates, which may have earlier calls and read no tools."""

    def _new_template(self, source: str | None) -> PromptTemplate:
        return PromptTemplate(source, self.tokenizer.special_names, self.work.longest)

    def find_format(self, tool_parser: str) -> AnswerFormat:
        """Format of calls with ``tool_parser``, and of reasoning in the templates."""
        templates = (self.tokenizer.chat_template or "") + (self.tokenizer.tool_use_template or "")
        return AnswerFormat.find_format(
            templates, self.tokenizer.special_token_id, tool_parser, self._args.reasoning_parser
        )

    @cached_property
    def reads(self) -> TemplateSupport:
        """Parts of tools that the chat templates show; the first caller waits for a process to render."""
        other = self.tool_use_template
        return self.chat_template.reads if other is None else self.chat_template.reads._replace(tools=other.reads.tools)

    @property
    def uses_tool_prompt(self) -> bool:
        """Whether :mod:`paternoster_engine.chat.tool_prompt` writes tools: the chat template reads none."""
        allowed = self._args.tool_template == "auto" and self._args.tool_parser in ("auto", "hermes")
        return allowed and self.tokenizer.chat_template is not None and not self.reads.tools

    async def encode_texts(
        self,
        tenant: str,
        field: str,
        texts: Sequence[str],
        add_special_tokens: bool,
        truncation: Truncation | None = None,
    ) -> list[Encoding]:
        """Tokens of each of ``texts``, which are the ``field`` of a body.

        Raises :class:`InvalidValue` for texts that could never fit, before they are read, and :class:`TextQueueFull`.
        """
        size = self.work.measure_texts(field, texts, self.max_model_len, cut=truncation is not None)

        def encode_texts() -> list[Encoding]:
            return [self.tokenizer.encode_text(text, add_special_tokens, truncation) for text in texts]

        return await self.work.run(tenant, size, encode_texts)

    def warm_up(self) -> None:
        """Start the process that renders, and find out what the template reads; waits, and raises nothing."""
        self.chat_template.renderer.warm_up()
        with suppress(RendererLost):
            _ = self.reads

    def close(self) -> None:
        self.work.close()
        for template in (self.chat_template, self.tool_use_template):
            if template is not None:
                template.renderer.close()
