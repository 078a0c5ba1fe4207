"""A server of the OpenAI API: the manifest's program and flags, which name the operator's settings."""

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.engines.openai_arguments import OpenAiKind


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
