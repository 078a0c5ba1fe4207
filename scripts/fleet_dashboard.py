"""The dashboard of one fleet: its state, its replicas one by one, and why it is as it is."""

from grafana_json import Json, dashboard, panel, variable
from promql import (
    ANNOTATIONS,
    DECISIONS,
    OF_ENGINES,
    counted,
    engine,
    gateway,
    grouped,
    operator,
    operator_gauge,
    quantiles,
    rate,
)

OF_MODEL = 'model="$model"'


def late(window: str) -> str:
    """Share of what came later than the limits allow, by objective; recorded by the chart's rules."""
    return " / ".join(
        f"sum_over_time(paternoster_llmdeployment:slo_{what}:rate5m{{{OF_ENGINES}}}[{window}])"
        for what in ("late", "observed")
    )


def limit(objective: str) -> tuple[str, str]:
    return f"max by (objective) ({operator('slo_seconds', f'objective={chr(34)}{objective}{chr(34)}')})", "limit"


STATE = [
    panel(
        "Replicas that serve",
        (operator_gauge("ready_replicas"), "ready"),
        (operator_gauge("desired_replicas"), "desired"),
        kind="stat",
        width=4,
        help="Replicas that take requests, beside those the operator aims at.",
    ),
    panel(
        "Later than allowed",
        (late("$__range"), "{{objective}}"),
        kind="stat",
        unit="percentunit",
        width=4,
        steps=(("green", None), ("orange", 0.05), ("red", 0.3)),
        help="Share of first tokens (ttft) and of times between tokens (itl) above the limits of spec.slo in the time "
        "shown; 5 % are allowed. Empty without limits, or without the chart's rules.",
    ),
    panel(
        "Conditions",
        (operator_gauge("condition", by="type, status, reason"), ""),
        kind="table",
        help="Status conditions as they are now. Their messages are in `kubectl describe`.",
    ),
    panel(
        "Decisions by loop, action and reason",
        (grouped(counted(DECISIONS, "$__range"), "loop, action, reason"), ""),
        kind="table",
        help="How often each loop decided what, and why, in the time shown. `paternoster explain` has the numbers of "
        "the last ten.",
    ),
]

STEERING = [
    panel(
        "Replicas",
        (operator_gauge("ready_replicas"), "ready"),
        (operator_gauge("desired_replicas"), "desired"),
        (operator_gauge("recommended_replicas"), "recommended"),
        (operator_gauge("pending_replicas"), "pending"),
        help="Recommended is what the law asks for before limits; desired is what limits leave of it.",
    ),
    panel(
        "Demand against capacity",
        (operator_gauge("demand_requests"), "demand"),
        (operator_gauge("capacity_requests"), "capacity"),
        help="Running, waiting and held requests; the sum of the live caps of serving replicas.",
    ),
    panel(
        "Live cap",
        (operator_gauge("desired_live_cap"), "set"),
        (operator_gauge("recommended_live_cap"), "recommended"),
        (engine("capacity"), "{{pod}} capacity"),
        help="Sequences that each engine may run, as the operator set and the law recommends, within its capacity.",
    ),
    panel(
        "Token budget",
        (operator_gauge("desired_token_budget"), "set"),
        (operator_gauge("recommended_token_budget"), "recommended"),
        (engine("max_batched_tokens"), "{{pod}} capacity"),
        help="Tokens that a step of each engine may hold, as the operator set and the law recommends.",
    ),
    panel(
        "Decisions by reason",
        (grouped(counted(DECISIONS, "$__rate_interval"), "loop, action, reason"), "{{loop}} {{action}}: {{reason}}"),
        bars=True,
        help="Changes, and each beginning to hold or to advise for another reason.",
    ),
    panel(
        "Preempted requests per finished request",
        (operator_gauge("preemption_ratio"), "as the operator sees it"),
        unit="percentunit",
        steps=(("green", None), ("orange", 0.02), ("red", 0.05)),
        help="In the window of the cap loop. Above its target, 2 % by default, the loop cuts the live cap.",
    ),
    panel(
        "Start-up time",
        (operator_gauge("startup_seconds"), "average"),
        unit="s",
        help="From a pod's creation until it serves, weighted towards the latest start; 0 while none was seen.",
    ),
]

LATENCY = [
    panel(
        "Time to first token",
        *quantiles(engine("time_to_first_token_seconds_bucket")),
        limit("ttft"),
        unit="s",
        help="From a request's arrival at an engine to its first token, beside spec.slo's limit. What the gateway held "
        "it for comes before.",
    ),
    panel(
        "Inter-token latency",
        *quantiles(engine("inter_token_latency_seconds_bucket")),
        limit("itl"),
        unit="s",
        help="Between two tokens of a request, beside spec.slo's limit.",
    ),
    panel(
        "Budget burnt",
        (f"{late('$__rate_interval')} / 0.05", "{{objective}}"),
        steps=(("green", None), ("orange", 1), ("red", 14.4)),
        help="Late share over the 5 % that are allowed: at 1 a month's budget lasts a month, at 14.4 two days.",
    ),
    panel(
        "Time to first byte at the gateway",
        *quantiles(gateway("time_to_first_byte_seconds_bucket", OF_MODEL)),
        unit="s",
        help="From arrival at the gateway to the first byte, with holding and retries, of all who serve this model, "
        "over all routes.",
    ),
    panel(
        "Time in the queue",
        *quantiles(engine("request_queue_time_seconds_bucket")),
        unit="s",
        help="From arrival at an engine to the first step that had tokens of the request.",
    ),
    panel(
        "Seconds of the engine's loop by stage",
        (grouped(rate(engine("stage_seconds_total")), "stage"), "{{stage}}"),
        help="Seconds per second over all replicas: the model's steps (forward), and the work around them.",
    ),
]

REPLICAS = [
    panel(
        "Running by replica",
        (engine("requests_running"), "{{pod}}"),
        (engine("live_cap"), "{{pod}} live cap"),
        help="Sequences that hold KV blocks, below the cap that the engine has now.",
    ),
    panel("Waiting by replica", (engine("requests_waiting"), "{{pod}}"), help="Requests in each engine's own queue."),
    panel(
        "Tokens per second by replica",
        (grouped(rate(engine("generation_tokens_total")), "pod"), "{{pod}}"),
        help="Sampled tokens. One replica far below the others: a slow node, or requests that do not reach it.",
    ),
    panel(
        "KV blocks held by requests",
        (engine("kv_cache_usage_ratio"), "{{pod}}"),
        unit="percentunit",
        top=1,
        help="Share of an engine's KV blocks. At 1, the next token of some request preempts another.",
    ),
    panel(
        "Preemptions per second by replica",
        (grouped(rate(engine("preemptions_total")), "pod"), "{{pod}}"),
        help="Times that a running request lost its blocks; a request may lose them more than once.",
    ),
    panel(
        "Prefix cache hit rate",
        (
            f"{grouped(rate(engine('prefix_cache_hits_total')), 'pod')}"
            f" / {grouped(rate(engine('prefix_cache_queries_total')), 'pod')}",
            "{{pod}}",
        ),
        unit="percentunit",
        top=1,
        help="Share of looked-up prompt tokens that the cache had.",
    ),
]

REQUESTS = [
    panel(
        "Requests by how they ended",
        (grouped(rate(engine("requests_finished_total")), "finished_reason"), "{{finished_reason}}"),
        unit="reqps",
        help="Whole answers (stop, length), clients that left (abort), steps that failed (error).",
    ),
    panel(
        "Requests refused by engines",
        (grouped(rate(engine("requests_rejected_total")), "reason"), "{{reason}}"),
        unit="reqps",
        help="Refused before the queue, by reason.",
    ),
    panel(
        "The gateway's answers by status",
        (grouped(rate(gateway("requests_total", OF_MODEL)), "code"), "{{code}}"),
        (grouped(rate(gateway("broken_streams_total", OF_MODEL)), "model"), "broken off"),
        unit="reqps",
        help="Of this model, and answers that broke off after they had begun with 200.",
    ),
    panel(
        "The gateway's answers by route",
        (grouped(rate(gateway("requests_total", OF_MODEL)), "route"), "{{route}}"),
        unit="reqps",
        help="Of this model: which of the API's routes clients call.",
    ),
]

PROCESSES = [
    panel(
        "CPU by replica",
        (rate(f"process_cpu_seconds_total{{{OF_ENGINES}}}"), "{{pod}}"),
        help="CPU seconds per second of the engine's process; with several ranks, of the first.",
    ),
    panel(
        "Memory by replica",
        (f"process_resident_memory_bytes{{{OF_ENGINES}}}", "{{pod}}"),
        unit="bytes",
        help="Resident memory of the engine's process, to be held against the pod's limit; no memory of GPUs.",
    ),
    panel(
        "Versions",
        (grouped(f"paternoster_build_info{{{OF_ENGINES}}}", "pod, version"), ""),
        kind="table",
        help="The version that each replica runs; two stand side by side while a rollout goes on.",
    ),
]


def fleet_dashboard() -> Json:
    fleets_metric = "paternoster_operator_desired_replicas"
    return dashboard(
        "paternoster-fleet",
        "Paternoster fleet",
        [
            variable("namespace", "Namespace", f"{fleets_metric}, namespace", several=False),
            variable(
                "llmdeployment", "LLMDeployment", f'{fleets_metric}{{namespace=~"$namespace"}}, name', several=False
            ),
            # what the gateway's series know it by
            variable("model", "Model", f"{engine('live_cap')}, model_name", several=False, hidden=True),
        ],
        ANNOTATIONS,
        {
            "State": STATE,
            "Steering": STEERING,
            "Latency": LATENCY,
            "Replicas": REPLICAS,
            "Requests": REQUESTS,
            "Processes": PROCESSES,
        },
    )
