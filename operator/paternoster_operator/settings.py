"""The operator's settings: one frozen object, a docstring for each field."""

import os
from dataclasses import dataclass, field

from paternoster_contract import labels


def _admin_key() -> str | None:
    return os.environ.get(labels.ADMIN_KEY_ENV) or None


@dataclass(frozen=True)
class Settings:
    """How the operator works; what it works on is in the cluster."""

    gateway_url: str | None = None
    """Base URL of the gateway, whose held requests count as demand; None without one. A name with several addresses
    stands for several gateways."""
    endpoint: str | None = None
    """URL that clients are told, in the status; the gateway's, or else the engines' own, when None."""
    engine_image: str = labels.DEFAULT_ENGINE_IMAGE
    """Image of engines whose resource names none."""
    workers: int = 16
    """LLMDeployments reconciled at the same time."""
    look_seconds: float = 5.0
    """Time between two looks at a fleet when nothing happens: the cap loop's period."""
    resync_seconds: float = 300.0
    """Time after which every child is applied again, whatever is remembered: hand edits of what is not watched end."""
    scrape_timeout_seconds: float = 2.0
    """An engine that has not answered by then is stale."""
    admin_key: str | None = field(default_factory=_admin_key, repr=False)
    """Key of the engines' admin API, from the environment."""
