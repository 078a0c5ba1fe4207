"""The printer columns: what ``kubectl get`` shows on a cluster and ``paternoster get`` without one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """Column as a CustomResourceColumnDefinition; priority above 0 shows with ``-o wide`` only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    description: str = ""


COLUMNS: tuple[Column, ...] = (
    Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    Column("Replicas", ".status.readyReplicas", "integer", description="Ready replicas"),
    Column("Desired", ".status.desiredReplicas", "integer", description="Replicas the operator aims at"),
    Column(
        "Seqs", ".status.concurrency.target", "integer", description="Live cap: sequences each engine may run at once"
    ),
    Column(
        "Tok/s",
        ".status.load.generationTokensPerSecond",
        "integer",
        description="Tokens generated per second; empty: not reported",
    ),
    Column("Age", ".metadata.creationTimestamp", "date"),
    Column("Model", ".status.servedModel", priority=1),
    Column("Queue", ".status.load.waitingRequests", "integer", 1, "Waiting requests; empty: not reported"),
    Column(
        "Preempt/1k",
        ".status.load.preemptionsPerThousand",
        "integer",
        1,
        "Preempted of 1000 finished requests; empty: not reported",
    ),
    Column("KV%", ".status.load.kvCachePercent", "integer", 1, "KV cache in use; empty: not reported"),
    Column("Cost/1M", ".status.economics.costPerMillionOutputTokens", priority=1, description="Of generated tokens"),
    Column("Mode", ".spec.autoscaling.mode", priority=1),
    Column("URL", ".status.endpoint", priority=1),
    Column("Message", '.status.conditions[?(@.type=="Ready")].message', priority=1),
)
