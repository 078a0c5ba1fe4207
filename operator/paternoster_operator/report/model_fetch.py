"""Reports of a model on its way to a node: that it is fetched, and why it could not be. Pure."""

from datetime import datetime

from paternoster_contract.fetch_status import FetchStatus
from paternoster_contract.labels import MODEL_CONTAINER
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.observed import Observed
from paternoster_operator.pods.view import Ended, PodView

CREATING = "ContainerCreating"
"""Why a container waits whose images are pulled and whose volumes are mounted (kubelet)."""
RETRY_SECONDS = 60.0
"""Time that a new try has until the failure of the last one is no longer reported: most fail again within it."""


def is_fetching(pod: PodView, spec: LLMDeploymentSpec) -> bool:
    """Whether the messages of ``pod`` are of the container that fetches its model."""
    return spec.model.remote and pod.container == MODEL_CONTAINER


def find_downloads(observed: Observed, spec: LLMDeploymentSpec) -> str:
    """The pods that fetch their model now, since when, and their progress; empty where there are none.

    In whole percent, with the rate as of then (:func:`kept`): each change of a status is one to etcd. Of an image the
    kubelet reports no more than that its container is not made yet.
    """
    if spec.model.image is not None:
        waiting = [pod.name for pod in observed.starting if pod.waiting_reason == CREATING]
        return f"{spec.model.source} is pulled and mounted for {', '.join(waiting)}" if waiting else ""
    pods = [f"{pod.name} since {pod.running_since}{_describe_share(pod.download)}" for pod in observed.fetching]
    return f"{spec.model.source} is fetched by {', '.join(pods)}" if pods and spec.model.remote else ""


def merge_progress(status: FetchStatus, before: FetchStatus | None) -> FetchStatus:
    """The status ``before`` until the whole percent changes, or bytes begin or cease to come."""
    return status if before is None or _find_step(before) != _find_step(status) else before


def _find_step(status: FetchStatus) -> tuple[int, int, bool]:
    return _percent_done(status), status.total, status.rate > 0


def _percent_done(status: FetchStatus) -> int:
    return 100 * min(status.done, status.total) // status.total if status.total else 0


def _describe_share(status: FetchStatus | None) -> str:
    if status is None or status.total <= 0:
        return ""
    rate = f", {status.rate / 1e6:.1f} MB/s" if status.rate else ""
    return f" ({_percent_done(status)} % of {status.total / 1e9:.1f} GB{rate})"


def find_failure(pod: PodView) -> tuple[str, str] | None:
    """Reason and message of the last try; None where it gave none."""
    status = FetchStatus.read(pod.ended.message) if pod.ended is not None else None
    return None if status is None or status.reason is None else (status.reason, status.message)


def gets_on(pod: PodView, now: str) -> bool:
    """Whether the present try runs for longer than failures take."""
    if pod.running_since is None:
        return False
    age = datetime.fromisoformat(now) - datetime.fromisoformat(pod.running_since)
    return age.total_seconds() > RETRY_SECONDS


def progress_words(ended: Ended) -> str:
    """The progress of a container that was ended while it fetched; else its own message."""
    status = FetchStatus.read(ended.message)
    if status is None:
        return ended.message
    return f"at {status.done / 1e9:.1f} of {status.total / 1e9:.1f} GB" if status.total else status.state
