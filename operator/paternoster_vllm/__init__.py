"""A plugin of vLLM: limits and counts of its scheduler, streams that another vLLM continues, and texts in its cache.

It needs the standard library alone, so that any image with vLLM loads it from a folder on PYTHONPATH. For texts in the
cache it has a copy of ``paternoster_contract.text_chains`` within, which needs vLLM's own pydantic. vLLM calls
:func:`register` in each of its processes, by the entry point ``vllm.general_plugins``; the API server gets the routes
by ``--middleware paternoster_vllm.middleware.LimitsMiddleware``.
"""

import logging

log = logging.getLogger(__name__)


def register() -> None:
    """Give vLLM's engine core the methods that the routes call, and grammars the tokens of streams that go on.

    Logs why where that is not possible.
    """
    try:
        from vllm.v1.engine.core import EngineCore

        from paternoster_vllm.engine_core import UTILITY, call_control
        from paternoster_vllm.text_chains import UTILITY as TEXT_CHAINS
    except ImportError as error:
        log.warning("paternoster_vllm: limits cannot be moved: this vLLM has no engine core of version 1: %s", error)
        return
    setattr(EngineCore, UTILITY, call_control)
    try:
        from paternoster_vllm.text_chains.block_watch import read_text_chains
    except ImportError as error:
        log.warning("paternoster_vllm: text chains are not published: %s", error)
    else:
        setattr(EngineCore, TEXT_CHAINS, read_text_chains)
    try:
        from vllm.v1.structured_output import StructuredOutputManager
    except ImportError:  # streams with structured outputs are not continued then
        return
    from paternoster_vllm.replayed_grammar import can_advance, wrap_grammars

    if can_advance(StructuredOutputManager):
        wrap_grammars(StructuredOutputManager)
