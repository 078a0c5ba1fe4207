"""The dashboard of all fleets: sums and comparisons."""

from grafana_json import Json, dashboard, panel, variable
from promql import (
    ANNOTATIONS,
    DECISIONS,
    counted,
    engine,
    gateway,
    grouped,
    of_process,
    operator,
    operator_gauge,
    quantiles,
    rate,
)

EACH = "{{namespace}}/{{llmdeployment}}"
EACH_OBJECT = "{{namespace}}/{{name}}"

TOKENS = rate(engine("generation_tokens_total"))
PREEMPTED = rate(engine("requests_preempted_total"))
FINISHED = rate(engine("requests_finished_total"))
FAILED = engine("requests_finished_total", 'finished_reason="error"')

FLEETS = [
    panel(
        "Tokens per second",
        (f"sum({TOKENS})", "tokens/s"),
        kind="stat",
        width=4,
        help="Tokens that all chosen fleets sample in a second.",
    ),
    panel(
        "Tokens per second by LLMDeployment",
        (grouped(TOKENS), EACH),
        width=10,
        help="Sampled tokens; prompt tokens are not among them.",
    ),
    panel(
        "Requests per second",
        (grouped(rate(engine("requests_total"))), f"{EACH} admitted"),
        (grouped(FINISHED), f"{EACH} finished"),
        unit="reqps",
        width=10,
        help="Requests that joined an engine's queue, and those that ended for any reason: apart, a queue grows.",
    ),
    panel(
        "Time to first token",
        *quantiles(engine("time_to_first_token_seconds_bucket")),
        unit="s",
        help="From a request's arrival at an engine to its first token. What the gateway held it for comes before.",
    ),
    panel(
        "Inter-token latency",
        *quantiles(engine("inter_token_latency_seconds_bucket")),
        unit="s",
        help="Between two tokens of a request, over all tokens of the chosen fleets.",
    ),
    panel(
        "Errors per second",
        (grouped(rate(FAILED)), f"{EACH} failed"),
        (grouped(rate(engine("requests_rejected_total")), "reason"), "rejected: {{reason}}"),
        (grouped(rate(gateway("requests_total", 'code=~"5.."')), "model, code"), "gateway {{code}} {{model}}"),
        unit="reqps",
        help="Failed and rejected in the engines; what the gateway answered with 5xx, of all models.",
    ),
]

CONCURRENCY = [
    panel(
        "Live cap against capacity",
        (grouped(engine("live_cap")), f"{EACH} live cap"),
        (grouped(engine("capacity")), f"{EACH} capacity"),
        (grouped(engine("requests_running")), f"{EACH} running"),
        width=12,
        help="Sums over the replicas. The operator moves the live cap below the capacity (max_num_seqs at start).",
    ),
    panel(
        "Waiting requests",
        (grouped(engine("requests_waiting")), f"{EACH} waiting"),
        (grouped(engine("requests_preempted_waiting")), f"{EACH} of these preempted"),
        width=12,
        help="In the engines' queues. Those preempted have run already and wait for KV blocks.",
    ),
    panel(
        "Preempted requests per finished request",
        (f"clamp_max({grouped(PREEMPTED)} / {grouped(FINISHED)}, 1)", EACH),
        unit="percentunit",
        width=12,
        steps=(("green", None), ("orange", 0.02), ("red", 0.05)),
        help="Requests that lost their KV blocks at least once. The cap loop keeps this at 2 %; alerts begin there.",
    ),
    panel(
        "Recomputed share of all tokens",
        (
            f"{grouped(rate(engine('recomputed_tokens_total')))} / {grouped(rate(engine('computed_tokens_total')))}",
            EACH,
        ),
        unit="percentunit",
        width=12,
        help="Tokens that went through the model a second time because their request was preempted.",
    ),
]

REPLICAS = [
    panel(
        "Replicas",
        (operator_gauge("ready_replicas"), f"{EACH_OBJECT} ready"),
        (operator_gauge("desired_replicas"), f"{EACH_OBJECT} desired"),
        (operator_gauge("recommended_replicas"), f"{EACH_OBJECT} recommended"),
        (operator_gauge("pending_replicas"), f"{EACH_OBJECT} pending"),
        help="Recommended is what the law asks for before limits; desired is what limits leave of it.",
    ),
    panel(
        "Demand against capacity",
        (operator_gauge("demand_requests"), f"{EACH_OBJECT} demand"),
        (operator_gauge("capacity_requests"), f"{EACH_OBJECT} capacity"),
        help="Running, waiting and held requests; the sum of the live caps of serving replicas.",
    ),
    panel(
        "Start-up time",
        (operator_gauge("startup_seconds"), EACH_OBJECT),
        unit="s",
        help="From a pod's creation until it serves, weighted towards the latest start; 0 while none was seen.",
    ),
    panel(
        "Decisions by reason",
        (grouped(counted(DECISIONS, "$__rate_interval"), "loop, action, reason"), "{{loop}} {{action}}: {{reason}}"),
        bars=True,
        width=12,
        help="Changes, and each beginning to hold or to advise for another reason.",
    ),
    panel(
        "Decisions by loop, action and reason",
        (grouped(counted(DECISIONS, "$__range"), "namespace, name, loop, action, reason"), ""),
        kind="table",
        width=12,
        help="How often each loop decided what, and why, in the time shown. `paternoster explain` has the numbers of "
        "the last ten.",
    ),
    panel(
        "Stalled",
        (operator_gauge("condition", 'type="Stalled"', 'status="True"', by="namespace, name, reason"), ""),
        kind="table",
        width=12,
        help="LLMDeployments that do not get what they need by waiting, and why; empty is well.",
    ),
    panel(
        "Reconciles per second",
        ("sum by (outcome) (rate(paternoster_operator_reconciles_total[$__rate_interval]))", "{{outcome}}"),
        width=12,
        help="Looks of the operator at some LLMDeployment, of all namespaces; one that failed is repeated later.",
    ),
]

KV = [
    panel(
        "KV blocks held by requests",
        (engine("kv_cache_usage_ratio"), "{{pod}}"),
        unit="percentunit",
        top=1,
        help="Share of an engine's KV blocks. At 1, the next token of some request preempts another.",
    ),
    panel(
        "Projected peak of the running requests",
        (engine("kv_projected_peak_ratio"), "{{pod}}"),
        unit="percentunit",
        help="Above 1, the running requests can come to need more blocks than there are.",
    ),
    panel(
        "Prefix cache",
        (grouped(engine("kv_cached_ratio"), how="avg"), f"{EACH} blocks held"),
        (
            f"{grouped(rate(engine('prefix_cache_hits_total')))}"
            f" / {grouped(rate(engine('prefix_cache_queries_total')))}",
            f"{EACH} hit rate",
        ),
        unit="percentunit",
        top=1,
        help="Share of the blocks that only the cache holds, and share of looked-up prompt tokens that it had.",
    ),
]

GATEWAY = [
    panel(
        "Held and in flight",
        (grouped(gateway("requests_held"), "model"), "{{model}} held"),
        (grouped(gateway("requests_in_flight"), "model"), "{{model}} in flight"),
        help="Of all models: the gateway knows no LLMDeployment. Held requests wait for a replica.",
    ),
    panel(
        "Retries and broken streams per second",
        (grouped(rate(gateway("retries_total")), "reason"), "retried: {{reason}}"),
        (grouped(rate(gateway("broken_streams_total")), "model"), "{{model}} broken off"),
        unit="reqps",
        help="Requests that had no byte yet go to another replica; an answer that had begun breaks off.",
    ),
    panel(
        "Time to first byte",
        *quantiles(gateway("time_to_first_byte_seconds_bucket")),
        unit="s",
        help="From a request's arrival at the gateway to the first byte of its answer, holding and retries included.",
    ),
]

TASKS = {"gateway": gateway("task_failures_total"), "operator": "paternoster_operator_task_failures_total"}

FAULTS = [
    panel(
        "Replicas that stand still",
        (f"sum({gateway('replicas_hung')})", "now"),
        (f"sum(increase({gateway('hangs_total')}[$__rate_interval]))", "found"),
        help="They answer no probe, so gateways give their requests to others until they do.",
    ),
    panel(
        "Reports that are not believed, per second",
        (
            grouped(rate(operator("reports_refused_total")), "namespace, name, reason"),
            f"{EACH_OBJECT}: {{{{reason}}}}",
        ),
        help="Numbers that no engine of that size can have, or no document at all; by the field.",
    ),
    panel(
        "Background tasks that failed, per second",
        *((grouped(rate(selector), "task"), f"{who}: {{{{task}}}}") for who, selector in TASKS.items()),
        help="Each is in the log with its cause, and begins again.",
    ),
]

PROCESSES = [
    panel(
        "CPU of operator and gateway",
        (of_process(rate("process_cpu_seconds_total"), "operator|gateway"), "{{pod}}"),
        help="CPU seconds per second. Each is one process with one event loop: near 1, it has no more to give.",
    ),
    panel(
        "Memory of operator and gateway",
        (of_process("process_resident_memory_bytes", "operator|gateway"), "{{pod}}"),
        unit="bytes",
        help="Resident memory of each process, to be held against its limit.",
    ),
    panel(
        "Versions",
        ("count by (component, version) (paternoster_build_info)", ""),
        kind="table",
        help="Processes by what they are and their version; two versions stand side by side while a rollout goes on.",
    ),
]


OPERATOR = [
    panel(
        "Longest wait for a look",
        ("max by (kind) (paternoster_operator_queue_oldest_seconds)", "{{kind}}"),
        unit="s",
        help="Of all LLMDeployments that are due now. Above the period of looks, 5 s, the operator falls behind.",
    ),
    panel(
        "Wait for a look",
        *(
            (
                f"histogram_quantile({quantile}, sum by (le, kind) "
                "(rate(paternoster_operator_queue_wait_seconds_bucket[$__rate_interval])))",
                f"{{{{kind}}}} p{round(100 * quantile)}",
            )
            for quantile in (0.5, 0.99)
        ),
        unit="s",
        help="How long LLMDeployments were due when their look began: requested by a change, or scheduled.",
    ),
    panel(
        "Late looks per second",
        ("sum by (pod) (rate(paternoster_operator_looks_late_total[$__rate_interval]))", "{{pod}}"),
        help="Scheduled looks that began more than half a period after they were due.",
    ),
    panel(
        "Objects received per second",
        (
            "sum by (kind, event) (rate(paternoster_operator_watch_objects_total[$__rate_interval]))",
            "{{kind}} {{event}}",
        ),
        (
            "sum by (kind) (rate(paternoster_operator_watch_objects_dropped_total[$__rate_interval]))",
            "{{kind}} dropped",
        ),
        help="From lists and watches of the API server; a standby receives them too. Dropped: listed again, unchanged.",
    ),
    panel(
        "Bytes received per second",
        (
            "sum by (kind, request) (rate(paternoster_operator_watch_bytes_total[$__rate_interval]))",
            "{{kind}} {{request}}",
        ),
        unit="Bps",
        help="Answers to lists and watches of the API server, uncompressed.",
    ),
    panel(
        "Writes per second",
        ("sum by (kind, reason) (rate(paternoster_operator_writes_total[$__rate_interval]))", "{{kind}}: {{reason}}"),
        help="Children, statuses and events that the operator sends to the API server, by why it does.",
    ),
    panel(
        "Requests per second by status",
        ("sum by (code) (rate(paternoster_operator_api_requests_total[$__rate_interval]))", "{{code}}"),
        help="All but lists, watches and the Lease. 429: the API server limits the operator; 0: no answer.",
    ),
]


def fleets_dashboard() -> Json:
    # The operator reports an LLMDeployment that is scaled to zero; engines do not.
    fleets_metric = "paternoster_operator_desired_replicas"
    return dashboard(
        "paternoster-fleets",
        "Paternoster fleets",
        [
            variable("namespace", "Namespace", f"{fleets_metric}, namespace", several=True),
            variable(
                "llmdeployment", "LLMDeployment", f'{fleets_metric}{{namespace=~"$namespace"}}, name', several=True
            ),
        ],
        ANNOTATIONS,
        {
            "Fleets": FLEETS,
            "Concurrency": CONCURRENCY,
            "Replicas": REPLICAS,
            "KV cache": KV,
            "Gateway": GATEWAY,
            "Faults": FAULTS,
            "Operator": OPERATOR,
            "Processes": PROCESSES,
        },
    )
