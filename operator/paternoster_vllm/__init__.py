"""A plugin of vLLM: limits of its scheduler over HTTP, counts of what it does, and streams that another vLLM continues.

It has no dependencies and imports no other package of this project, so that any image with vLLM loads it from a folder
on PYTHONPATH. vLLM calls :func:`register` in each of its processes, by the entry point ``vllm.general_plugins``; the
API server gets the route by ``--middleware paternoster_vllm.middleware.LimitsMiddleware``.
"""

import logging

log = logging.getLogger(__name__)


def register() -> None:
    """Give vLLM's engine core the method that the route calls, and grammars the tokens of streams that go on.

    Logs why where that is not possible.
    """
    try:
        from vllm.v1.engine.core import EngineCore

        from paternoster_vllm.engine_core import UTILITY, call_control
    except ImportError as error:
        log.warning("paternoster_vllm: limits cannot be moved: this vLLM has no engine core of version 1: %s", error)
        return
    setattr(EngineCore, UTILITY, call_control)
    try:
        from vllm.v1.structured_output import StructuredOutputManager
    except ImportError:  # streams with structured outputs are not continued then
        return
    from paternoster_vllm.replayed_grammar import can_advance, wrap_grammars

    if can_advance(StructuredOutputManager):
        wrap_grammars(StructuredOutputManager)
