"""``system_fingerprint`` differs between engines that may give other tokens, and no others."""

from dataclasses import replace

import pytest

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint
from paternoster_engine.server.process import compute_fingerprint

ARGS = EngineArgs(device="cpu")


def test_what_chooses_no_tokens_is_not_in_it(checkpoint: Checkpoint) -> None:
    fingerprint_of_args = compute_fingerprint(ARGS, checkpoint.config)
    assert fingerprint_of_args.startswith("fp_")
    same = ARGS.model_copy(update={"port": 9000, "max_num_seqs": 3, "served_model_name": "other", "threads": 1})
    assert compute_fingerprint(same, checkpoint.config) == fingerprint_of_args


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "float32"}, {"quantization": "int8"}, {"kv_cache_dtype": "int8"}, {"tensor_parallel_size": 3},
        {"batch_invariant": True}, {"model": "file:///other.gguf"},
    ],
    ids=str,
)  # fmt: skip
def test_what_chooses_tokens_is(checkpoint: Checkpoint, change: dict[str, object]) -> None:
    assert compute_fingerprint(ARGS.model_copy(update=change), checkpoint.config) != compute_fingerprint(
        ARGS, checkpoint.config
    )


def test_another_model_at_the_same_place_is(checkpoint: Checkpoint) -> None:
    other = replace(checkpoint.config, num_layers=checkpoint.config.num_layers - 1)
    assert compute_fingerprint(ARGS, other) != compute_fingerprint(ARGS, checkpoint.config)
