"""``spec.engine.extraArgs``: flags for what no field says, in the words of the parser of ``paternoster serve``."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.api.extra_args import fields_of_settings, parse_extra_args
from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.api.v1alpha1 import LLMDeployment, LLMDeploymentSpec
from paternoster_operator.desired.engine_args import engine_args

Resource = Callable[..., LLMDeployment]
FIELDS = fields_of_settings()


def without(*settings: str) -> dict[str, str | None]:
    """Flags where no field of the resource set these settings yet."""
    return {name: path for name, path in FIELDS.items() if name not in settings}


def test_each_field_that_is_named_is_there() -> None:
    for path in filter(None, FIELDS.values()):
        model: Any = LLMDeploymentSpec
        for part in path.split("."):
            if isinstance(model, type) and issubclass(model, BaseModel):
                (model,) = [field.annotation for field in model.model_fields.values() if field.alias == part]
            else:
                assert (path, part) == ("resources.limits.cpu", "cpu"), "the rest of a mapping"


def test_every_setting_is_said_by_a_field_or_open_to_flags() -> None:
    assert FIELDS.keys() <= EngineArgs.model_fields.keys()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-num-seqs", "5"], "--max-num-seqs must not be here: use spec.engine.maxNumSeqs"),
        (["--no-prefix-cache"], "--prefix-cache must not be here: use spec.engine.prefixCache"),
        (["--prefill-first"], "--prefill-first must not be here: use spec.engine.scheduling.prefillFirst"),
        (["--header-timeout", "9"], "--header-timeout must not be here: use spec.engine.http.headerTimeoutSeconds"),
        (["--live-cap", "5"], "--live-cap must not be here: use spec.concurrency.initial"),
        (["--device", "cpu"], "--device must not be here: use spec.resources.gpu.count"),
        (["--port", "1"], "--port is for the operator to set"),
        (["--identity-header"], "--identity-header is for the operator to set"),
        (
            ["--port", "1", "--dtype", "x"],
            "--dtype must not be here: use spec.engine.dtype; --port is for the operator",
        ),
        (["--turbo"], "unrecognized arguments: --turbo"),
        (["--max-num", "5"], "unrecognized arguments: --max-num 5"),
        (["much"], "unrecognized arguments: much"),
        (["--dtype"], "argument --dtype: expected one argument"),
        (["--overlap"], "--overlap was removed: steps are planned ahead"),
    ],
)
def test_what_is_refused_and_why(resource: Resource, words: list[str], message: str) -> None:
    with pytest.raises(InvalidManifest) as refused:
        resource(engine={"extraArgs": words})
    (line,) = refused.value.errors
    assert line.startswith(f"spec.engine.extraArgs: is {words!r}: {message}")


def test_a_bad_value_is_told_in_the_words_of_serve() -> None:
    with pytest.raises(ValueError, match=r"--max-model-len is '1': input should be greater than or equal to 16"):
        parse_extra_args(["--max-model-len", "1"], without("max_model_len"))


def test_what_no_field_says_reaches_the_engine(resource: Resource, monkeypatch: pytest.MonkeyPatch) -> None:
    open_ones = without("max_model_len", "batch_invariant")
    monkeypatch.setattr("paternoster_operator.api.types.engine.fields_of_settings", lambda: open_ones)
    fleet = resource(engine={"extraArgs": ["--max-model-len", "512", "--batch-invariant"], "maxNumSeqs": 5})
    args = engine_args(fleet)
    assert (args.max_model_len, args.batch_invariant, args.max_num_seqs) == (512, True, 5)
    flags = args.to_flags()
    assert flags[flags.index("--max-model-len") + 1] == "512"
    assert engine_args(resource()) == engine_args(resource(engine={"extraArgs": []}))


WORDS = st.lists(
    st.sampled_from(["--dtype", "--threads=2", "float32", "-h", "--", "--no-prefix-cache", "--overlap", "=", ""])
    | st.text(max_size=5)
)


@given(words=WORDS)
def test_no_words_get_past_the_fields_and_none_breaks_the_check(words: list[str]) -> None:
    """With a field for every setting there is nothing left to set."""
    document = {
        "apiVersion": "paternoster.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": "ride"},
        "spec": {"model": {"source": "file:///m"}, "engine": {"extraArgs": words}},
    }
    try:
        fleet = parse_resource(document)
    except InvalidManifest:
        return
    assert fleet.spec.engine.extra_settings().keys().isdisjoint(FIELDS)
