"""The kinds of engines that there are, by type; nothing here parses what engines answer."""

from collections.abc import Mapping

from paternoster_operator.engines.adapter import EngineKind, RuntimeType
from paternoster_operator.engines.openai_arguments import OpenAiKind
from paternoster_operator.engines.paternoster import PaternosterKind
from paternoster_operator.engines.sglang_arguments import SglangKind
from paternoster_operator.engines.vllm_arguments import VllmKind

KINDS: Mapping[RuntimeType, EngineKind] = {
    kind.type: kind for kind in (PaternosterKind(), VllmKind(), OpenAiKind(), SglangKind())
}
