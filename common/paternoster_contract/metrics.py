"""Every metric of the engine, declared once: the exporter builds from this list, dashboards and tests read it.

Names under ``paternoster_engine_`` are ours. ``vllm`` gives the name of the same number in vLLM, exported as an
alias because autoscaling recipes, dashboards and gateway endpoint pickers read those. Histograms carry vLLM's
bucket edges plus millisecond edges, which small models need.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

_TTFT = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
_ITL = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
)
_LATENCY = (
    .005, .01, .025, .05, .1, .2, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480,
    960, 1920, 7680,
)  # fmt: skip
_STEP = (.0005, .001, .0025, .005, .01, .02, .04, .06, .08, .1, .15, .25, .5, 1, 2.5, 5)  # fmt: skip
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
_PREEMPTIONS = (0, 1, 2, 3, 4, 5, 10, 20)
_CHOICES = (1, 2, 5, 10, 20)
KV_RESIDENCY_BUCKETS = (
    .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800,
)  # fmt: skip
"""Seconds."""
CACHE_CONFIG_LABELS = (
    "block_size", "cache_dtype", "enable_prefix_caching", "gpu_memory_utilization", "num_cpu_blocks", "num_gpu_blocks",
)  # fmt: skip
"""vLLM's labels of ``cache_config_info``, as far as they have a meaning here."""


@dataclass(frozen=True)
class Metric:
    """One metric family. ``name`` of a counter is without ``_total``, as prometheus-client takes it."""

    key: str
    kind: Kind
    help: str
    vllm: str | None = None
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return f"paternoster_engine_{self.key}"


ENGINE_METRICS: tuple[Metric, ...] = (
    Metric("requests_running", "gauge", "Sequences that hold KV blocks.", "vllm:num_requests_running"),
    Metric("requests_waiting", "gauge", "Queued sequences, preempted ones included.", "vllm:num_requests_waiting"),
    Metric(
        "requests_waiting_by_reason",
        "gauge",
        "Queued sequences by why they wait: capacity, or deferred, as their tenant's limit is reached or another "
        "request computes their prefix.",
        "vllm:num_requests_waiting_by_reason",
        ("reason",),
    ),
    Metric("requests_preempted_waiting", "gauge", "Queued sequences that ran before and were preempted."),
    Metric("live_cap", "gauge", "Sequences that may run now."),
    Metric("capacity", "gauge", "Most sequences that can ever run at once (max_num_seqs at start)."),
    Metric("token_budget", "gauge", "Tokens that a step may hold now."),
    Metric("max_batched_tokens", "gauge", "Tokens that a step can ever hold."),
    Metric("kv_cache_usage_ratio", "gauge", "Share of KV blocks that requests hold, 0..1.", "vllm:kv_cache_usage_perc"),
    Metric(
        "cache_config_info",
        "gauge",
        "Always 1; the labels say how the KV cache is configured.",
        "vllm:cache_config_info",
        CACHE_CONFIG_LABELS,
    ),
    Metric("kv_cached_ratio", "gauge", "Share of KV blocks held only by the prefix cache, 0..1."),
    Metric("kv_projected_peak_ratio", "gauge", "Largest share of the KV pool the running requests can come to need."),
    Metric("host_kv_usage_ratio", "gauge", "Share of the host blocks for swapping that are in use, 0..1."),
    Metric("loop_heartbeat_timestamp_seconds", "gauge", "When the engine loop last ticked, seconds since the epoch."),
    Metric("start_seconds", "gauge", "Seconds from the process's start until it was ready, by part.", None, ("part",)),
    Metric("text_pieces", "gauge", "Pieces of text that are cached, as gateways read them."),
    Metric("text_chain_readers", "gauge", "Gateways that read which text is cached."),
    Metric("text_pieces_reported", "counter", "Pieces of text reported to gateways as cached or gone."),
    Metric("adapter_resident_bytes", "gauge", "Memory of adapters, those that only running requests hold included."),
    Metric("adapter_loads", "counter", "Adapters read from their files."),
    Metric("adapter_evictions", "counter", "Adapters evicted for others."),
    Metric("adapter_waits", "counter", "Requests that waited for their adapter to be read."),
    Metric(
        "lora_requests_info",
        "gauge",
        "When the labels were so: most adapters in memory, and those of running and of waiting requests.",
        "vllm:lora_requests_info",
        ("max_lora", "running_lora_adapters", "waiting_lora_adapters"),
    ),
    Metric("requests", "counter", "Requests admitted to the queue."),
    Metric("requests_finished", "counter", "Ended requests by reason.", "vllm:request_success", ("finished_reason",)),
    Metric(
        "requests_rejected", "counter", "Requests refused before the queue.", "vllm:admission_rejections", ("reason",)
    ),
    Metric(
        "share_refusals",
        "counter",
        "Requests refused or given up beyond their sender's share of a port.",
        None,
        ("resource",),
    ),
    Metric(
        "corrupted_requests",
        "counter",
        "Requests that ended because the model gave NaN or infinite numbers for them.",
        "vllm:corrupted_requests",
    ),
    Metric(
        "requests_preempted",
        "counter",
        "Distinct requests preempted at least once, but for shares.",
    ),
    Metric("preemptions", "counter", "Preemption events.", "vllm:num_preemptions"),
    Metric("displacements", "counter", "Preemptions for a more important request or another tenant's share."),
    Metric("swapped_blocks", "counter", "KV blocks copied to host memory and back.", None, ("direction",)),
    Metric("prefix_waits", "counter", "Times a request sat out a step while another computed its next block."),
    Metric("prompt_tokens", "counter", "Prompt tokens of scheduled requests.", "vllm:prompt_tokens"),
    Metric("prompt_tokens_cached", "counter", "Prompt tokens served by the prefix cache.", "vllm:prompt_tokens_cached"),
    Metric(
        "prompt_tokens_by_source",
        "counter",
        "Prompt tokens of scheduled requests by where their keys and values came from.",
        "vllm:prompt_tokens_by_source",
        ("source",),
    ),
    Metric("generation_tokens", "counter", "Tokens sampled.", "vllm:generation_tokens"),
    Metric("prefix_cache_queries", "counter", "Tokens looked up in the prefix cache.", "vllm:prefix_cache_queries"),
    Metric("prefix_cache_hits", "counter", "Tokens found in the prefix cache.", "vllm:prefix_cache_hits"),
    Metric("computed_tokens", "counter", "Tokens that went through the model."),
    Metric(
        "spec_decode_num_drafts",
        "counter",
        "Times that tokens were proposed and verified, by who proposed them.",
        "vllm:spec_decode_num_drafts",
        ("proposer",),
    ),
    Metric(
        "spec_decode_num_draft_tokens",
        "counter",
        "Tokens that were proposed.",
        "vllm:spec_decode_num_draft_tokens",
        ("proposer",),
    ),
    Metric(
        "spec_decode_num_accepted_tokens",
        "counter",
        "Proposed tokens that were what was sampled.",
        "vllm:spec_decode_num_accepted_tokens",
        ("proposer",),
    ),
    Metric(
        "spec_decode_num_accepted_tokens_per_pos",
        "counter",
        "The same by their place in the proposal.",
        "vllm:spec_decode_num_accepted_tokens_per_pos",
        ("position",),
    ),
    Metric("recomputed_tokens", "counter", "Tokens computed again because of a preemption."),
    Metric("live_cap_changes", "counter", "Changes of the live cap."),
    Metric("token_budget_changes", "counter", "Changes of the token budget."),
    Metric("batch_requests_running", "gauge", "Sequences of batches that hold KV blocks."),
    Metric("batch_requests_waiting", "gauge", "Queued sequences of batches, preempted ones included."),
    Metric("batch_kv_cache_usage_ratio", "gauge", "Share of KV blocks that batches alone hold, 0..1."),
    Metric("batch_requests", "counter", "Requests of batches admitted to their queue."),
    Metric("batch_requests_finished", "counter", "Ended requests of batches."),
    Metric("batch_preemptions", "counter", "Preemptions of batches, most of them for online requests."),
    Metric("batch_generation_tokens", "counter", "Tokens sampled for batches."),
    Metric("batch_computed_tokens", "counter", "Tokens of batches that went through the model."),
    Metric("batch_recomputed_tokens", "counter", "Tokens of batches computed again because of a preemption."),
    Metric("stage_seconds", "counter", "Engine-loop seconds by stage.", None, ("stage",)),
    Metric("grammars", "counter", "Grammars asked for, by what became of them.", None, ("result",)),
    Metric(
        "time_to_first_token_seconds",
        "histogram",
        "Arrival to first token.",
        "vllm:time_to_first_token_seconds",
        (),
        _TTFT,
    ),
    Metric(
        "inter_token_latency_seconds",
        "histogram",
        "Between two tokens of a request.",
        "vllm:inter_token_latency_seconds",
        (),
        _ITL,
    ),
    Metric(
        "e2e_request_latency_seconds",
        "histogram",
        "Arrival to last token.",
        "vllm:e2e_request_latency_seconds",
        (),
        _LATENCY,
    ),
    Metric(
        "request_queue_time_seconds",
        "histogram",
        "Arrival to first scheduling.",
        "vllm:request_queue_time_seconds",
        (),
        _LATENCY,
    ),
    Metric(
        "request_prefill_time_seconds",
        "histogram",
        "First scheduling to first token.",
        "vllm:request_prefill_time_seconds",
        (),
        _LATENCY,
    ),
    Metric(
        "request_decode_time_seconds",
        "histogram",
        "First to last token.",
        "vllm:request_decode_time_seconds",
        (),
        _LATENCY,
    ),
    Metric(
        "request_inference_time_seconds",
        "histogram",
        "First scheduling to last token.",
        "vllm:request_inference_time_seconds",
        (),
        _LATENCY,
    ),
    Metric(
        "request_time_per_output_token_seconds",
        "histogram",
        "Mean time between a request's tokens; of requests with at least two.",
        "vllm:request_time_per_output_token_seconds",
        (),
        _ITL,
    ),
    Metric(
        "request_prompt_tokens", "histogram", "Prompt tokens per request.", "vllm:request_prompt_tokens", (), _TOKENS
    ),
    Metric(
        "request_generation_tokens",
        "histogram",
        "Sampled tokens per request.",
        "vllm:request_generation_tokens",
        (),
        _TOKENS,
    ),
    Metric(
        "request_max_generation_tokens",
        "histogram",
        "Sampled tokens of the longest of a prompt's choices.",
        "vllm:request_max_num_generation_tokens",
        (),
        _TOKENS,
    ),
    Metric(
        "request_prefill_computed_tokens",
        "histogram",
        "Prompt tokens per request that the prefix cache did not have.",
        "vllm:request_prefill_kv_computed_tokens",
        (),
        _TOKENS,
    ),
    Metric(
        "request_params_max_tokens",
        "histogram",
        "Output tokens that each request may have.",
        "vllm:request_params_max_tokens",
        (),
        _TOKENS,
    ),
    Metric("request_params_n", "histogram", "Choices asked for, per prompt.", "vllm:request_params_n", (), _CHOICES),
    Metric(
        "kv_block_lifetime_seconds",
        "histogram",
        "Allocation of a KV block to its eviction; of sampled blocks.",
        "vllm:kv_block_lifetime_seconds",
        (),
        KV_RESIDENCY_BUCKETS,
    ),
    Metric(
        "kv_block_idle_before_evict_seconds",
        "histogram",
        "Last access to a KV block (allocation or hit) to its eviction; of sampled blocks.",
        "vllm:kv_block_idle_before_evict_seconds",
        (),
        KV_RESIDENCY_BUCKETS,
    ),
    Metric(
        "kv_block_reuse_gap_seconds",
        "histogram",
        "Between two accesses to a KV block (allocation or hit); of sampled blocks.",
        "vllm:kv_block_reuse_gap_seconds",
        (),
        KV_RESIDENCY_BUCKETS,
    ),
    Metric(
        "request_preemptions",
        "histogram",
        "Preemptions per finished request.",
        "vllm:request_num_preemptions",
        (),
        _PREEMPTIONS,
    ),
    Metric(
        "grammar_compile_seconds",
        "histogram",
        "To compile a grammar, or to find out that it cannot be.",
        None,
        (),
        _STEP,
    ),
    Metric("request_grammar_seconds", "histogram", "Per request with a grammar: all its masks.", None, (), _STEP),
    Metric("step_tokens", "histogram", "Tokens per step.", "vllm:iteration_tokens_total", (), _STEP_TOKENS),
    Metric("step_seconds", "histogram", "Seconds per step.", None, (), _STEP),
)

MODEL_LABEL = "model_name"
"""Label on every engine metric, named as vLLM names it."""

BUILD = "paternoster_build"
"""Information metric of engine, operator and gateway (``paternoster_build_info`` on the wire)."""
