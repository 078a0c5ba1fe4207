"""What a grammar may cost: its compiling is a client's own, its masks hold up everybody's step."""

from llguidance import LLParserLimits

MAX_BYTES = 256 * 2**10
"""Of a grammar's text, as the client sends it."""
CPU_TIME = 1.0
"""Seconds of a processor for compiling one."""
WALL_TIME = 20.0
"""Seconds after which a process that computes nothing is killed as well."""
MASK_TIME = 0.1
"""Seconds of a processor for one mask. llguidance bounds its own work, but not how long a text a grammar may force:
one of 200,000 bytes took 0.4 s, and 0.06 s to spell for each token.
"""
FORCED_TIME = 0.005
"""Seconds of a processor for what is forced, above which a grammar is not asked for it any more."""
MEMORY = 2**30
"""Bytes of address space of the process that tries grammars; with a vocabulary of 49,152 it has 110 MiB."""
STACK = 4 * 2**20
"""Bytes of that process's stack: half of what the engine's threads have, so what passes there cannot overflow here."""


def parser_limits() -> LLParserLimits:
    """A twentieth to a fourth of llguidance's own: with those an ambiguous grammar took 115 ms for one mask."""
    return LLParserLimits(
        max_items_in_row=500,
        initial_lexer_fuel=500_000,
        step_lexer_fuel=50_000,
        step_max_items=5_000,
        max_lexer_states=10_000,
        verbose_errors=False,
    )
