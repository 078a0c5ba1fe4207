"""Map messages of Kubernetes to a reason and a next step. Pure.

Kubelet, scheduler, controllers and admission report errors as free text. :func:`explain_stall` looks a message up in
one table, so that it has the same reason and next step in a pod's status, in an event about the pod, and in a condition
of its Deployment. The messages are those of Kubernetes 1.33 to 1.35.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StallReason:
    """Why a fleet is stalled: waiting does not help until the cause is fixed."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _CauseRule:
    pattern: re.Pattern[str]
    reason: str
    """Empty where the message determines only the next step, and the caller the reason."""
    step: str
    """Format string for the pattern's groups."""
    places: tuple[str, ...] = ()
    """Reasons of callers whose messages it applies to; all where empty. ``connection refused`` is about a registry in
    the message of a pull, and about something else in that of a sandbox or a volume."""


MISSING, REFUSED, CANNOT_RUN = "ConfigurationMissing", "PodCreationFailed", "ContainerCannotRun"
_PULL, _SCHEDULING = ("ImagePullFailed",), ("Unschedulable", "InsufficientGPUs")
_CAUSE_RULES = tuple(
    _CauseRule(re.compile(pattern, re.DOTALL), reason, step, *places)
    for pattern, reason, step, *places in (
        (r'(configmap|secret) "([^"]+)" not found', MISSING, "make {0} {1} in the namespace of the fleet"),
        (r"couldn't find key (\S+) in (ConfigMap|Secret) ([^\s;]+)", MISSING, "add the key {0} to {1} {2}"),
        (
            r"references non-existent (?:config|secret) key: ([^\s;]+)",
            MISSING,
            "add the key {0} to what the volume is of",
        ),
        (r'serviceaccount "([^"]+)" not found', MISSING, "make ServiceAccount {0}, or change serviceAccountName"),
        (r"no PriorityClass with name (\S+) was found", MISSING, "make PriorityClass {0}, or change priorityClassName"),
        (r'RuntimeClass "([^"]+)" not found', MISSING, "make RuntimeClass {0}, or change runtimeClassName"),
        (r"exceeded quota", "QuotaExceeded", "raise the quota, or ask for less"),
        (r"failed quota: (\S+): must specify", "QuotaExceeded", "set in resources what the quota {0} names"),
        (
            r'violates PodSecurity "([^"]+)"',
            REFUSED,
            "keep podTemplate within {0}, or change the namespace's label pod-security.kubernetes.io/enforce",
        ),
        (r'failed calling webhook "([^"]+)"', REFUSED, "see that the webhook {0} runs"),
        (r'admission webhook "([^"]+)" denied', REFUSED, "ask for what the webhook {0} allows"),
        (
            r"ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request",
            REFUSED,
            "ask for what the policy {0} allows",
        ),
        (
            r"(?:maximum|minimum) \S+ usage per (?:Pod|Container)|max limit to request ratio per (?:Pod|Container)",
            REFUSED,
            "ask for what the LimitRange allows",
        ),
        (
            r"runAsNonRoot and image|runAsUser breaks non-root policy",
            CANNOT_RUN,
            "name an image with a numeric user that is not root, or set runAsUser in podTemplate",
        ),
        (
            r"cannot load seccomp profile|apparmor profile not found",
            CANNOT_RUN,
            "load the profile on the node, or change it in podTemplate",
        ),
        (r"container init was OOM-killed", "OOMKilled", "raise resources.limits.memory"),
        (
            r'failed to (?:prepare subPath|create subPath directory) for volumeMount "([^"]+)"',
            "VolumeMountFailed",
            "create the subPath in the volume {0}, or mount the volume without readOnly",
        ),
        (
            r"hostPath type check failed: (\S+) is not",
            "VolumeMountFailed",
            "create {0} on the node, or change the type of the hostPath",
        ),
        (r"exec format error", "", "name an image for the processor of the node", (CANNOT_RUN,)),
        (
            r'exec: "([^"]+)": (?:executable file not found|stat \S+ no such file|permission denied)',
            "",
            "name an image that can run {0}",
            (CANNOT_RUN,),
        ),
        (
            r"read-only file system",
            "",
            "mount the volume at a path that exists, or outside of what is read-only",
            (CANNOT_RUN,),
        ),
        (r"Multi-Attach error", "VolumeInUse", "free the volume, or use one that several nodes may mount"),
        (r'persistentvolumeclaim "([^"]+)" is being deleted', "VolumeClaimNotFound", "make the claim {0} again"),
        (
            r'persistentvolumeclaim "([^"]+)" bound to non-existent persistentvolume',
            "VolumeClaimUnbound",
            "the volume is lost: restore it, or delete and create the claim {0}",
        ),
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
        (r"didn't match Pod's node affinity/selector", "", "label a node so, or change nodeSelector", _SCHEDULING),
        (
            r"untolerated taint|had taints that the pod didn't tolerate",
            "",
            "add to tolerations, or to nodes",
            _SCHEDULING,
        ),
        (r"invalid reference format|couldn't parse image (?:name|reference)", "", "correct the image's name", _PULL),
        (r"pull policy of Never", "", "load the image on the node, or change imagePullPolicy", _PULL),
        (r"no match for platform in manifest", "", "name an image for the processor of the node", _PULL),
        (r"no space left on device", "", "free space on the node's disk", _PULL),
        (r"x509: ", "", "make the node trust the registry's certificate", _PULL),
        (
            r"server gave HTTP response to HTTPS client",
            "",
            "serve the registry over HTTPS, or allow HTTP in the node's container runtime",
            _PULL,
        ),
        (
            r"toomanyrequests|429 Too Many Requests",
            "",
            "the registry limits pulls: name a Secret of it in imagePullSecrets, or use a mirror",
            _PULL,
        ),
        (
            r"pull access denied|unauthorized|authorization failed|403 Forbidden|denied: |no basic auth credentials",
            "",
            "name a Secret of the registry in imagePullSecrets",
            _PULL,
        ),
        (
            r"no such host|connection refused|i/o timeout|dial tcp|TLS handshake timeout",
            "",
            "see that nodes reach the registry",
            _PULL,
        ),
        (r"50[0234] (?:Internal Server|Bad Gateway|Service Unavail|Gateway)", "", "see that the registry runs", _PULL),
        (r"manifest unknown|: not found", "", "see that the registry has this name and tag", _PULL),
    )
)


def explain_stall(reason: str, message: str, *, step: bool = True) -> StallReason:
    """Add the next step to ``message``, where one is known; ``reason`` applies where the message determines none."""
    found = _match_rule(reason, message)
    if found is None:
        return StallReason(reason, message)
    rule, known_step = found
    return StallReason(rule.reason or reason, f"{message.rstrip('. ')}; {known_step}" if step else message)


def find_step(reason: str, message: str) -> str:
    """The next step that ``message`` determines, with or without the step in it; empty where none is known."""
    found = _match_rule(reason, message)
    return "" if found is None else found[1]


def _match_rule(reason: str, message: str) -> tuple[_CauseRule, str] | None:
    for rule in _CAUSE_RULES:
        if rule.places and reason not in rule.places:
            continue
        if (found := rule.pattern.search(message)) is not None:
            return rule, rule.step.format(*found.groups())
    return None


def is_known(message: str) -> bool:
    """Whether the message by itself determines a reason."""
    return any(rule.reason and rule.pattern.search(message) for rule in _CAUSE_RULES)
