"""Map messages of Kubernetes to a reason and a next step. Pure.

Kubelet, scheduler, controllers and admission report errors as free text. :func:`explain` looks a message up in one
table, so that it has the same reason and next step in a pod's status, in an event about the pod, and in a condition of
its Deployment. The messages are those of Kubernetes 1.33 to 1.35.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StallReason:
    """Why a fleet is stalled: waiting does not help until the cause is fixed."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Known:
    pattern: re.Pattern[str]
    reason: str
    """Empty where the message determines only the next step, and the caller the reason."""
    step: str
    """Format string for the pattern's groups."""


MISSING, REFUSED = "ConfigurationMissing", "PodCreationFailed"
_KNOWN = tuple(
    _Known(re.compile(pattern, re.DOTALL), reason, step)
    for pattern, reason, step in (
        (r'(configmap|secret) "([^"]+)" not found', MISSING, "make {0} {1} in the namespace of the fleet"),
        (r"couldn't find key (\S+) in (ConfigMap|Secret) (\S+)", MISSING, "add the key {0} to {1} {2}"),
        (r"references non-existent (?:config|secret) key: (\S+)", MISSING, "add the key {0} to what the volume is of"),
        (r'serviceaccount "([^"]+)" not found', MISSING, "make ServiceAccount {0}, or change serviceAccountName"),
        (r"no PriorityClass with name (\S+) was found", MISSING, "make PriorityClass {0}, or change priorityClassName"),
        (r'RuntimeClass "([^"]+)" not found', MISSING, "make RuntimeClass {0}, or change runtimeClassName"),
        (r"exceeded quota", "QuotaExceeded", "raise the quota, or ask for less"),
        (
            r'violates PodSecurity "([^"]+)"',
            REFUSED,
            "keep podTemplate within {0}, or change the namespace's label pod-security.kubernetes.io/enforce",
        ),
        (r'failed calling webhook "([^"]+)"', REFUSED, "see that the webhook {0} runs"),
        (r'admission webhook "([^"]+)" denied', REFUSED, "ask for what the webhook {0} allows"),
        (r"(?:maximum|minimum) \S+ usage per (?:Pod|Container)", REFUSED, "ask for what the LimitRange allows"),
        (r"Multi-Attach error", "VolumeInUse", "free the volume, or use one that several nodes may mount"),
        (r'persistentvolumeclaim "([^"]+)" is being deleted', "VolumeClaimNotFound", "make the claim {0} again"),
        (
            r"unbound immediate PersistentVolumeClaims",
            "VolumeClaimUnbound",
            "see the events of the claim: it needs a volume, or a storage class that makes one",
        ),
        (
            r"driver name (\S+) not found in the list of registered CSI drivers",
            "VolumeMountFailed",
            "install the driver {0} on the node",
        ),
        (
            r'no runtime for "([^"]+)" is configured',
            "PodSandboxFailed",
            "configure the handler {0} in the node's container runtime, or change runtimeClassName",
        ),
        (r"didn't match Pod's node affinity/selector", "", "label a node so, or change nodeSelector"),
        (r"untolerated taint|had taints that the pod didn't tolerate", "", "add to tolerations, or to nodes"),
        (
            r"pull access denied|unauthorized|authorization failed|403 Forbidden|denied: ",
            "",
            "name a Secret of the registry in imagePullSecrets",
        ),
        (r"no such host|connection refused|i/o timeout|dial tcp", "", "see that nodes reach the registry"),
        (r"manifest unknown|: not found", "", "see that the registry has this name and tag"),
    )
)


def explain(reason: str, message: str, *, step: bool = True) -> StallReason:
    """Add the next step to ``message``, where one is known; ``reason`` applies where the message determines none."""
    for known in _KNOWN:
        if (found := known.pattern.search(message)) is not None:
            text = f"{message.rstrip('. ')}; {known.step.format(*found.groups())}" if step else message
            return StallReason(known.reason or reason, text)
    return StallReason(reason, message)


def is_known(message: str) -> bool:
    """Whether the message by itself determines a reason."""
    return any(known.reason and known.pattern.search(message) for known in _KNOWN)
