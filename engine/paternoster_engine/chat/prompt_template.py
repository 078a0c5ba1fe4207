"""One chat template of a model: its renderer, and what it was found to support."""

from collections.abc import Mapping
from functools import cached_property

from paternoster_engine.chat.late_system import carries_late_system
from paternoster_engine.chat.renderer import Renderer
from paternoster_engine.chat.support import TemplateSupport, detect_template_support


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
