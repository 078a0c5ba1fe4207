"""How a pod's container ended, in words. Pure."""

from signal import Signals

from paternoster_contract.labels import ENGINE_CONTAINER
from paternoster_operator.engines.adapter import RuntimeType
from paternoster_operator.pods.view import PodView
from paternoster_operator.report.model_fetch import progress_words

_KILLED_CHILD = "exit code: -9"
"""The end of a process of an engine that got SIGKILL, as engines log it."""


def describe_end(pod: PodView) -> str:
    """How its container ended last; empty where it has not."""
    ended = pod.ended
    if ended is None:
        return ""
    text = progress_words(ended)
    killed = ended.status - 128
    by = f" ({Signals(killed).name})" if killed in set(Signals) else ""
    if pod.container == ENGINE_CONTAINER and pod.engine_type is not RuntimeType.PATERNOSTER:
        if _KILLED_CHILD in text.lower():
            text += "; -9 is SIGKILL, which kernels send where memory runs out"
        elif ended.status == 0 and not text:
            text = "a server ends so when another process of its engine has died; its log has the cause"
    return f"ended with exit code {ended.status}{by}" + (f": {text}" if text else "")
