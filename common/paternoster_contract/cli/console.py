"""rich's console for tables, bars and the live view: what it renders is quoted, and none of it is markup."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from paternoster_contract.cli.quoting import quote_line


class QuotingConsole(Console):
    """Reads no markup and no names of emojis in what it prints; a text is one line, wrapped where it is long."""

    def __init__(self, **options: Any) -> None:
        """``options`` are those of :class:`rich.console.Console`."""
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        # Also where a renderable asks for it, as the columns of a bar do.
        return super().render_str(quote_line(text), **{**options, "markup": False, "emoji": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Quote what comes ready as rich's ``Text``, too: all but its line breaks, which layout has made."""
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or text == "\n" or text.isprintable():
                yield segment
            else:
                yield Segment("\n".join(quote_line(line, None) for line in text.split("\n")), segment.style)
