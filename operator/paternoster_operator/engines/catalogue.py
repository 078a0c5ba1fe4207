"""The adapters there are, by type."""

from collections.abc import Mapping

from paternoster_operator.engines.adapter import EngineAdapter, RuntimeType
from paternoster_operator.engines.openai_server import OpenAiAdapter
from paternoster_operator.engines.paternoster import PaternosterAdapter
from paternoster_operator.engines.sglang import SglangAdapter
from paternoster_operator.engines.vllm import VllmAdapter
from paternoster_operator.engines.vllm_without_plugin import VllmWithoutPlugin

ADAPTERS: Mapping[RuntimeType, EngineAdapter] = {
    adapter.kind.type: adapter for adapter in (PaternosterAdapter(), VllmAdapter(), SglangAdapter(), OpenAiAdapter())
}
TARGET_ADAPTERS: Mapping[RuntimeType, EngineAdapter] = {**ADAPTERS, RuntimeType.VLLM: VllmWithoutPlugin()}
"""Adapters of engines that the operator did not start, and has no key of."""
PATERNOSTER = ADAPTERS[RuntimeType.PATERNOSTER]
