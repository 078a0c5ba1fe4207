"""One chat template of a model: what renders it, and what it was found to show."""

from collections.abc import Mapping
from functools import cached_property

from paternoster_engine.chat.late_system import carries_late_system
from paternoster_engine.chat.renderer import Renderer
from paternoster_engine.chat.support import TemplateSupport, detect_template_support


class PromptTemplate:
    """What is found out is asked for in a thread: the first to ask waits for a process to render."""

    def __init__(self, source: str | None, variables: Mapping[str, str], longest: int) -> None:
        """``source`` and ``variables`` as of :class:`Renderer`; ``longest``: bytes of the longest prompt."""
        self.source = source or ""
        self.renderer = Renderer(source, variables)
        self._longest = longest

    @cached_property
    def reads(self) -> TemplateSupport:
        """What it shows of tools; raises :class:`RendererLost`."""
        return detect_template_support(self.renderer)

    @cached_property
    def carries_late_system(self) -> bool:
        """Whether it writes system messages where they stand."""
        return carries_late_system(
            lambda messages, begun: self.renderer.render(messages, self._longest, add_generation_prompt=begun)
        )

    @property
    def reads_developer(self) -> bool:
        """Whether it knows the role ``developer``, as that of gpt-oss does."""
        return "developer" in self.source
