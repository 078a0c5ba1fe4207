"""A manifest can set every setting of an engine, and an engine takes what a manifest may set."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.api.types.engine import Memory, Scheduling
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.children import RootKeys, build_children
from paternoster_operator.desired.engine_args import Installation, engine_args

Resource = Callable[..., LLMDeployment]

OF_THE_POD = {"host", "port", "admin_port", "api_keys", "admin_keys", "identity_header"}
"""Its addresses, where its keys are mounted, and whether only the gateway has them."""
BY_FLAG = {"allowed_origins", "kv_events_config"}
"""spec.engine.extraArgs says it: pages call the gateway, which has its own, and its router reads no such events."""
STEERED = {"live_cap", "token_budget"}
"""Through the admin API: spec.concurrency. In a pod's args they would restart it."""

ENGINE: dict[str, tuple[dict[str, Any], Any]] = {
    "dtype": ({"dtype": "float32"}, "float32"),
    "quantization": ({"quantization": "int8"}, "int8"),
    "batch_invariant": ({"batchInvariant": True}, True),
    "max_num_seqs": ({"maxNumSeqs": 5}, 5),
    "max_model_len": ({"maxModelLen": 500}, 500),
    "max_batched_tokens": ({"maxBatchedTokens": 300}, 300),
    "max_queued_requests": ({"maxQueuedRequests": 7}, 7),
    "parse_special_tokens": ({"parseSpecialTokens": True}, True),
    "disable_any_whitespace": ({"disableAnyWhitespace": True}, True),
    "vllm_metrics": ({"vllmMetrics": True}, True),
    "cache_isolation": ({"cacheIsolation": "Fleet"}, "fleet"),
    "order": ({"order": "fair-share"}, "fair-share"),
    "min_priority": ({"minPriority": 1}, 1),
    "max_priority": ({"maxPriority": 9}, 9),
    "block_size": ({"blockSize": 16}, 16),
    "kv_cache_dtype": ({"kvCacheDtype": "int8"}, "int8"),
    "kv_cache_memory": ({"kvCacheMemory": "1Gi"}, 2**30),
    "prefix_cache": ({"prefixCache": False}, False),
    "prefill_first": ({"scheduling": {"prefillFirst": True}}, True),
    "await_prefix": ({"scheduling": {"awaitPrefix": False}}, False),
    "admission": ({"scheduling": {"admission": "no-evict"}}, "no-evict"),
    "speculative": ({"scheduling": {"speculative": "ngram"}}, "ngram"),
    "draft_model": ({"scheduling": {"speculative": "draft", "draftModel": "file:///d"}}, "file:///d"),
    "priority_aging": ({"scheduling": {"priorityAgingSeconds": 30}}, 30),
    "pause_lower_classes": ({"order": "priority", "scheduling": {"pauseLowerClasses": True}}, True),
    "reserved_slots": ({"scheduling": {"reservedSlots": 4}}, 4),
    "watermark_percent": ({"memory": {"watermarkPercent": 3}}, 3),
    "gpu_memory_utilization": ({"memory": {"gpuUtilizationPercent": 55}}, 0.55),
    "preemption": ({"memory": {"preemption": "swap"}}, "swap"),
    "swap_memory": ({"memory": {"swapMemory": "1Gi"}}, 2**30),
    "max_adapter_memory": ({"memory": {"maxAdapterMemory": "1Gi"}}, 2**30),
    "max_queued_per_tenant": ({"tenants": {"maxQueued": 5}}, 5),
    "max_running_per_tenant": ({"tenants": {"maxRunning": 6}}, 6),
    "tenant_tokens_per_second": ({"tenants": {"tokensPerSecond": 70}}, 70),
    "tenant_token_burst": ({"tenants": {"tokenBurst": 80}}, 80),
    "tenant_weights": ({"tenants": {"weights": [{"name": "a", "percent": 50}]}}, {"a": 0.5}),
}
"""Field of ``spec.engine`` for each setting, and what the engine gets."""
ELSEWHERE: dict[str, tuple[dict[str, Any], Any]] = {
    "model": ({"model": {"source": "file:///m"}}, "file:///m"),
    "served_model_name": (
        {"model": {"source": "file:///m", "servedName": "m/8b", "aliases": ["m:8b", "m", "m/8b"]}},
        ("m/8b", "m:8b", "m"),
    ),
    "chat_template": ({"model": {"source": "file:///m", "chatTemplate": "{{ messages }}"}}, "{{ messages }}"),
    "tool_parser": ({"model": {"source": "file:///m", "toolParser": "hermes"}}, "hermes"),
    "tool_template": ({"model": {"source": "file:///m", "toolTemplate": "none"}}, "none"),
    "reasoning_parser": ({"model": {"source": "file:///m", "reasoningParser": "think"}}, "think"),
    "generation_config": ({"model": {"source": "file:///m", "generationConfig": "none"}}, "none"),
    "task": ({"model": {"source": "file:///m", "task": "embed"}}, "embed"),
    "pooling": ({"model": {"source": "file:///m", "pooling": "cls"}}, "cls"),
    "matryoshka": ({"model": {"source": "file:///m", "matryoshka": True}}, True),
    "device": ({"resources": {"gpu": {"count": 2}}}, "cuda"),
    "tensor_parallel_size": ({"resources": {"gpu": {"count": 2}}}, 2),
    "threads": ({"resources": {"limits": {"cpu": "2500m"}}}, 3),
    "drain_timeout": ({"drain": {"timeoutSeconds": 9}}, 9),
}
"""Field of the rest of ``spec`` for each setting."""
SET_BY_MANIFEST = ELSEWHERE | {name: ({"engine": engine}, value) for name, (engine, value) in ENGINE.items()}


def test_every_setting_has_a_field_of_the_manifest() -> None:
    """A new flag has its field of a manifest here; limits of HTTP ports have a test of their own."""
    assert (
        EngineArgs.model_fields.keys() - HttpLimits.model_fields.keys()
        == SET_BY_MANIFEST.keys() | OF_THE_POD | BY_FLAG | STEERED
    )


@pytest.mark.parametrize("name", SET_BY_MANIFEST)
def test_what_a_manifest_says_reaches_the_engine(resource: Resource, name: str) -> None:
    spec, value = SET_BY_MANIFEST[name]
    assert getattr(engine_args(resource()), name) != value, "an example says something else than the default"
    assert getattr(engine_args(resource(**spec)), name) == value


def test_what_a_manifest_leaves_out_needs_no_flag(resource: Resource) -> None:
    of_the_fleet = {"model", "served_model_name", "host", "admin_port", "admin_keys"}
    args = engine_args(resource(model={"source": "file:///m"}))
    differ = {name for name in EngineArgs.model_fields if getattr(args, name) != getattr(EngineArgs(), name)}
    assert differ == of_the_fleet


def test_parts_that_were_not_in_the_schema_once_change_no_pod(resource: Resource) -> None:
    """What the API server adds to a stored resource is what its absence meant."""
    added = {
        "scheduling": Scheduling().model_dump(by_alias=True, exclude_none=True),
        "memory": Memory().model_dump(by_alias=True),
        "tenants": {"maxQueued": 0, "maxRunning": 0, "tokensPerSecond": 0, "tokenBurst": 0, "weights": []},
        "quantization": "auto",
        "kvCacheDtype": "auto",
    }
    roots = RootKeys(["admin-root"])
    assert build_children(resource(engine=added), 1, roots) == build_children(resource(), 1, roots)


def test_vllm_metrics_are_the_fleets_choice_before_the_operators(resource: Resource) -> None:
    installation = Installation(vllm_metrics=True)
    assert engine_args(resource(), installation).vllm_metrics
    assert not engine_args(resource(engine={"vllmMetrics": False}), installation).vllm_metrics


def parts(*examples: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of the examples' fields together, with their values or others."""
    merged: dict[str, st.SearchStrategy[Any]] = {}
    for example in examples:
        for name, value in example.items():
            both = st.just(value) if not isinstance(value, bool) else st.booleans()
            merged[name] = both | merged.get(name, st.nothing())
    return st.fixed_dictionaries({}, optional=merged)


NUMBERS = st.sampled_from([0, 1, 63, 64, 65, 4095, 100])
ANY_ENGINE = st.builds(
    lambda engine, scheduling, **nested: engine | {"scheduling": scheduling} | nested,
    parts(*(e for e, _ in ENGINE.values() if not {"scheduling", "memory", "tenants"} & e.keys())).flatmap(
        lambda engine: st.just(engine) | st.just(engine | {"order": "priority"})
    ),
    st.builds(
        lambda some, slots: some if slots is None else some | {"reservedSlots": slots},
        parts(*(e["scheduling"] for e, _ in ENGINE.values() if "scheduling" in e)),
        st.none() | NUMBERS,
    ),
    memory=parts(*(e["memory"] for e, _ in ENGINE.values() if "memory" in e)),
    tenants=parts(*(e["tenants"] for e, _ in ENGINE.values() if "tenants" in e)),
)


@settings(deadline=None, max_examples=200)
@given(engine=ANY_ENGINE, gpus=st.sampled_from([0, 0, 1]))
def test_what_a_schema_allows_an_engine_takes(engine: dict[str, Any], gpus: int) -> None:
    """The rules of the schema and those of the settings refuse the same."""
    document = {
        "apiVersion": "paternoster.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": "ride"},
        "spec": {"model": {"source": "file:///m"}, "engine": engine, "resources": {"gpu": {"count": gpus}}},
    }
    try:
        fleet = parse_resource(document)
    except InvalidManifest:
        return
    args = engine_args(fleet)
    assert args.quantization != "int8" or args.device != "cuda"
