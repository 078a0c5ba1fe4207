"""Profiles that ship load, and those that are wrong say where."""

from pathlib import Path

import pytest
import yaml

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_simulator.profile import Profile, ProfileError, load_profile, parse_profile, profile_names
from paternoster_simulator.settings import FleetSettings, with_capacity


def document() -> dict[str, object]:
    return load_profile("llama-3-8b-h100").model_dump()


@pytest.mark.parametrize("name", profile_names())
def test_a_profile_of_the_package_is_whole(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    config = FleetSettings().scheduler_config(profile)
    assert config.num_blocks * config.block_size >= profile.max_model_len, "one request of full length fits"
    assert profile.max_batched_tokens >= profile.max_num_seqs


def test_an_unknown_profile_is_an_error_that_lists_the_names() -> None:
    with pytest.raises(ProfileError, match=r"profile is 'h999'.*llama-3-8b-h100"):
        load_profile("h999")


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**document(), "name": "mine"}))
    assert load_profile(path).name == "mine"


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    wrong = document()
    wrong["kv_blocks"] = 0
    wrong["colour"] = "red"
    wrong["engine"] = "SGLang"
    del wrong["source"]
    path.write_text(yaml.safe_dump(wrong))
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert sorted(str(caught.value).splitlines()) == sorted(
        [
            f"{path}: source: is missing: it is required",
            f"{path}: kv_blocks: is 0: must be greater than or equal to 1",
            f"{path}: colour: is unknown",
            f"{path}: engine: is 'SGLang': must be 'Paternoster' or 'VLLM'",
        ]
    )


@pytest.mark.parametrize("text", ["- 1", "a: [", ""])
def test_what_is_no_profile_at_all_is_refused(text: str) -> None:
    with pytest.raises(ProfileError, match=r"^here: is "):
        parse_profile(text, where="here")


def spec(**engine: int) -> LLMDeploymentSpec:
    return LLMDeploymentSpec.model_validate({"model": {"source": "file:///model"}, "engine": engine})


def test_the_manifest_overrides_the_profile() -> None:
    profile = load_profile("llama-3-8b-h100")
    config = FleetSettings.from_spec(spec(maxNumSeqs=32), profile).scheduler_config(profile)
    assert (config.max_num_seqs, config.max_batched_tokens) == (32, profile.max_batched_tokens)
    given = FleetSettings.from_spec(spec(maxBatchedTokens=512), profile).scheduler_config(profile)
    assert given.max_batched_tokens == 512
    assert with_capacity(spec(maxNumSeqs=32), profile).engine.max_num_seqs == 32
    assert with_capacity(spec(), profile).engine.max_num_seqs == profile.max_num_seqs


def test_every_running_sequence_fits_into_a_step_as_on_an_engine() -> None:
    profile = load_profile("smollm2-135m-cpu2")
    config = FleetSettings.from_spec(spec(maxNumSeqs=1024), profile).scheduler_config(profile)
    assert config.max_batched_tokens == 1024 > profile.max_batched_tokens


def test_an_engine_is_our_own_unless_the_profile_names_another() -> None:
    unnamed = {name: value for name, value in document().items() if name != "engine"}
    assert Profile.model_validate(unnamed).engine == "Paternoster"


def test_the_price_is_of_all_gpus() -> None:
    profile: Profile = load_profile("llama-3-70b-h100x4")
    assert profile.usd_per_replica_hour == 4 * profile.usd_per_gpu_hour
