"""A server of the OpenAI API: the manifest's program and flags, which name the operator's settings."""

import pytest

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.api.extra_args import fields_of_settings
from paternoster_operator.api.types.engine import Engine
from paternoster_operator.engines.openai_arguments import HONOURED, REFUSALS, OpenAiKind


def test_every_setting_is_honoured_or_refused() -> None:
    """A new setting of the engine without a rule for such a server would be dropped in silence."""
    fields = fields_of_settings(Engine)
    refused = {refusal.field for refusal in REFUSALS}
    left = {name for name in EngineArgs.model_fields if name not in HONOURED and fields.get(name) not in refused}
    assert left == set()
    assert {fields.get(name) for name in HONOURED} & refused == set()


def test_the_operators_settings_are_variables_for_flags_to_name() -> None:
    settings = EngineArgs(
        model="file:///models/m%20x.gguf", served_model_name=("m", "n"), host="0.0.0.0", max_num_seqs=4,
        max_model_len=512,
    )  # fmt: skip
    launch = OpenAiKind().launch(settings, ["--port", "$(PATERNOSTER_PORT)"])
    assert (launch.command, launch.args) == ([], ["--port", "$(PATERNOSTER_PORT)"])
    assert launch.env == {
        "PATERNOSTER_HOST": "0.0.0.0", "PATERNOSTER_PORT": "8000", "PATERNOSTER_MODEL": "/models/m x.gguf",
        "PATERNOSTER_MODEL_NAME": "m", "PATERNOSTER_MAX_NUM_SEQS": "4", "PATERNOSTER_MAX_MODEL_LEN": "512",
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name, text in HONOURED.items() if "$(" in text])
def test_what_is_passed_is_a_variable_of_that_name(name: str) -> None:
    variable = HONOURED[name].partition("$(")[2].partition(")")[0]
    assert variable in OpenAiKind().launch(EngineArgs(model="file:///m")).env
