"""Decodes sampled tokens as answers: how a model writes them, and the grammars that they are held to."""

from functools import cached_property

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.sampling.grammars.lazy import SeenTokens
from paternoster_engine.server.continuation.unanswered import UnansweredCalls
from paternoster_engine.server.generation.grammar_work import GrammarWork
from paternoster_engine.server.generation.prompt_encoder import PromptEncoder
from paternoster_engine.server.loop import EngineLoop
from paternoster_engine.server.metrics.histograms import Histograms
from paternoster_engine.server.parsers.formats import AnswerFormat


class AnswerDecoder:
    """Decodes the answers of one model."""

    def __init__(self, loop: EngineLoop, prompts: PromptEncoder, histograms: Histograms, args: EngineArgs) -> None:
        """``args``: the settings, one of which is whether JSON of grammars has no white space between its tokens."""
        self.loop = loop
        self.tokenizer = prompts.tokenizer
        self.grammars = GrammarWork(prompts.tokenizer, histograms, compact=args.disable_any_whitespace)
        self.unanswered = UnansweredCalls()
        self._prompts = prompts

    @cached_property
    def format(self) -> AnswerFormat:
        """Format of calls of tools and of reasoning; the first caller waits for a process to render.

        A model whose template has marks of calls was trained to write those, even if the template shows no tools.
        """
        written, uses_tool_prompt = self._prompts.template_format, self._prompts.uses_tool_prompt
        return self._prompts.find_format("hermes") if uses_tool_prompt and written.tools is None else written

    @cached_property
    def seen_tokens(self) -> SeenTokens:
        """Tokens as the parsers of answers see them."""
        marks = {token: text.encode() for text, token in self.format.special.items()}

        def spell_token(token: int) -> bytes:
            if self.tokenizer.is_special(token):
                return marks.get(token, b"")
            return self.tokenizer.token_bytes(token)

        return SeenTokens(self.tokenizer.largest_id + 1, spell_token)
