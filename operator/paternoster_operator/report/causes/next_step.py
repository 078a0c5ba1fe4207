"""Next steps for a condition: what its message determines, or else what its reason does. Pure."""

from collections.abc import Mapping
from types import MappingProxyType

from paternoster_operator.report.causes.cause import find_step

_SEE_LOG = "see the log of the engine: kubectl logs POD -c engine, or the file that the message names"
_SOURCE = "correct spec.model.source"
_VOLUME = "see the events of the volume and of its claim: kubectl describe pvc -n NAMESPACE"
_PLACE = "add a node, or ask for less in spec.resources"
_NAME = "choose other names in spec.model.servedName and aliases, or let the other fleet give them up"
_FIELDS = "correct the field that the message names, and apply the manifest again"
STEPS: Mapping[str, str] = MappingProxyType({
    "ImagePullFailed": "see that nodes reach the registry, and that it has the image",
    "ModelSourceFailed": f"{_SOURCE}: the engine cannot serve what is there",
    "Unauthorized": "put valid credentials into the Secret of spec.model.credentialsSecretRef",
    "GatedModel": "accept the model's terms with the account of the token in spec.model.credentialsSecretRef",
    "InvalidAddress": _SOURCE,
    "SourceNotFound": f"{_SOURCE}: there is no such repository, bucket or file",
    "RevisionNotFound": f"{_SOURCE}: there is no such branch, tag or commit",
    "NoWeights": f"{_SOURCE}: it needs safetensors or GGUF files",
    "UnsafeWeights": f"{_SOURCE}: name a source with safetensors, as pickles are not loaded",
    "AmbiguousWeights": f"{_SOURCE}: name one file of several",
    "UnsafeListing": "use another source: this one lists what no honest one does",
    "TooLarge": "use another source: this one has more than a model has",
    "NotCached": "unset HF_HUB_OFFLINE, or put the model into the cache",
    "Unreachable": "see that pods reach the source: DNS, proxy, NetworkPolicy",
    "Corrupted": "see that the source serves whole files: what came does not match its hashes",
    "NoSpace": "give spec.model.cache more space",
    "CacheUnusable": "see that the volume of spec.model.cache can be written",
    "EngineCrashLoop": _SEE_LOG,
    "OutOfMemory": "ask for more memory or GPUs, or lower engine.kvCacheMemory, maxNumSeqs or maxModelLen",
    "EngineProbeFailed": "correct the flags of the engine in spec.engine.runtime",
    "EngineRefusesRequests": "correct the flags of the engine in spec.engine.runtime",
    "OOMKilled": "raise resources.limits.memory, or lower engine.kvCacheMemory",
    "ContainerCannotRun": "name an image that has the engine in spec.engine.runtime.image",
    "ConfigurationInvalid": "correct the list of keys that the message names",
    "ConfigurationMissing": "make the object that the message names in the namespace of the fleet",
    "RoutingTableFull": "use fewer keys a fleet, or fewer fleets in the namespace",
    "TargetNotFound": "make the Deployment, or remove spec.targetRef",
    "OwnPodsRun": "remove spec.targetRef, or delete the fleet's own Deployment",
    "ServedNameTaken": _NAME,
    "ServedNameNotNamespaced": "let spec.model.servedName and aliases begin with the namespace and a slash",
    "NameRecordFull": "use fewer or shorter names, or fewer fleets in the namespace",
    "ChildNotOwned": "delete or rename the objects that the message names",
    "ClusterRefused": "allow what the API server refuses, or ask for what it allows",
    "ReconcileFailed": "see the operator's log",
    "InsufficientGPUs": "free a GPU, add a node with some, or lower spec.resources.gpu.count",
    "Unschedulable": _PLACE,
    "VolumeClaimNotFound": "make the claim, or name another in spec.model.source",
    "VolumeClaimUnbound": _VOLUME,
    "VolumeMountFailed": _VOLUME,
    "VolumeInUse": "free the volume, or use one that several nodes may mount",
    "PodSandboxFailed": "see the node's container runtime and network plug-in",
    "DevicesNotPrepared": "see the driver of the resource claim on the node",
    "SchedulingGated": "remove the gates, or have their controller do so",
    "LifecycleHookFailed": "correct the postStart hook in spec.podTemplate",
    "PodRejected": "see the node that the message names",
    "QuotaExceeded": "raise the quota, or ask for less",
    "PodCreationFailed": "allow such pods in the namespace, or ask for what is allowed",
    "ProgressDeadlineExceeded": "see the pods below",
    "Paused": "set spec.paused to false",
    "InvalidSpec": _FIELDS,
    "WatchFailed": "see that the operator may read the namespace",
    "WatchedByAnotherInstallation": "let each installation watch namespaces of its own (watchNamespaces)",
    "ForeignFields": "set these fields in spec.podTemplate, and nowhere else",
    "NoGatewayAnswers": "see that gateways run and the operator reaches them",
    "NoGateway": "install a gateway, or use an engine whose limits a call moves",
    "SomePodsStale": "see that the operator reaches the engines' admin ports (NetworkPolicy)",
    "NoPodsReporting": "see that the operator reaches the engines' admin ports (NetworkPolicy)",
    "ReportsRefused": "see the version of the engines: what they report is not plausible",
    "MaxReplicas": "raise autoscaling.maxReplicas where requests wait too long",
    "GPUBudget": "raise spec.budget.maxGPUs where requests wait too long",
    "ReducingOnPreemption": "give the engines more KV memory (engine.kvCacheMemory) where this lasts",
    "AtFloor": "give the engines more KV memory (engine.kvCacheMemory): fewer sequences do not help",
})  # fmt: skip
"""Steps by reason of a condition that is not as it should be. Of others nothing is to be done."""


def find_next_step(reason: str, message: str) -> str:
    """Next step for a condition; empty where waiting is all."""
    return find_step(reason, message) or STEPS.get(reason, "")
