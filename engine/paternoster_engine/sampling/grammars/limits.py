"""Limits of a grammar: its compilation delays its client alone, its masks delay the whole batch."""

from llguidance import LLParserLimits

MAX_BYTES = 256 * 2**10
"""Limit for a grammar's text, as the client sends it."""
CPU_TIME = 1.0
"""Seconds of a processor for compiling one."""
WALL_TIME = 20.0
"""Seconds after which a process that computes nothing is killed as well."""
MASK_TIME = 0.1
"""Seconds of a processor for one mask. llguidance bounds its own work, but not how long a text a grammar may force:
one of 200,000 bytes took 0.4 s, and 0.06 s to spell for each token.
"""
FORCED_TIME = 0.005
"""Processor seconds for forced tokens above which a grammar forces none any more."""
STEP_TIME = 0.02
"""Seconds of a processor for all masks of one sequence in a step, above which fewer tokens are proposed for it: each
of them needs a mask. One that a grammar of 1,000 forced bytes had took 0.18 s for 17.
"""
MAX_MEMORY = 2**30
"""Bytes of address space of the process that tries grammars; with a vocabulary of 49,152 it has 110 MiB."""
MAX_STACK = 4 * 2**20
"""Bytes of that process's stack: half of what the engine's threads have, so what passes there cannot overflow here."""


MAX_PARSER_COST = 40_000_000
"""Items that a parser may look at for one token (:class:`ParserCost`). llguidance bounds how many it makes, and sees it
when they are made: of a rule with 500 equal alternatives, 0.5e9, a mask took 1.2 s, with 1,000 9 s.
"""
MAX_ITEMS = 500
"""Ways to go on at one place. Those of an ambiguous grammar grow with the answer: with 2,000 a mask took 60 ms."""
ITEMS_OF_SCHEMAS = 2000
"""Most items of grammars of JSON: an object has four for each name that may follow."""


def parser_limits(items: int) -> LLParserLimits:
    """A twentieth to a fourth of llguidance's own but for ``items``, the ways to go on at one place."""
    return LLParserLimits(
        max_items_in_row=items,
        initial_lexer_fuel=500_000,
        step_lexer_fuel=50_000,
        step_max_items=6_000,
        max_lexer_states=10_000,
        verbose_errors=False,
    )
