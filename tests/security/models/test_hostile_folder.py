"""Folders of safetensors whose files lie, are of the wrong type or lead elsewhere: each ends in one line."""

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paternoster_engine.model.errors import ModelError

Load = Callable[[Path], None]

DEEP = "[" * 100_000 + "]" * 100_000


def _config(**change: Any) -> Callable[[Path], None]:
    """config.json with some fields changed; ``...`` takes one away."""

    def apply(folder: Path) -> None:
        path = folder / "config.json"
        document = {**json.loads(path.read_text()), **change}
        path.write_text(json.dumps({key: value for key, value in document.items() if value is not ...}))

    return apply


def _tokenizer(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "tokenizer.json"
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    return apply


def _text(name: str, text: str | bytes) -> Callable[[Path], None]:
    return lambda folder: void((folder / name).write_bytes(text.encode() if isinstance(text, str) else text))


def _link(name: str, target: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return apply


def _fifo(name: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return apply


def _outside(name: str) -> Callable[[Path], None]:
    """The file itself is sound, but beside the folder."""

    def apply(folder: Path) -> None:
        (folder / name).rename(folder.parent / name)
        (folder / name).symlink_to(f"../{name}")

    return apply


def _header(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """The header of model.safetensors changed."""

    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        data = path.read_bytes()
        size = struct.unpack_from("<Q", data)[0]
        document = json.loads(data[8 : 8 + size])
        change(document)
        head = json.dumps(document).encode()
        path.write_bytes(struct.pack("<Q", len(head)) + head + data[8 + size :])

    return apply


def _header_size(size: int) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(struct.pack("<Q", size) + path.read_bytes()[8:])

    return apply


def void(_: object) -> None:
    """For functions that give nothing."""


NORM, EMBED = "model.norm.weight", "model.embed_tokens.weight"
CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "config is empty": (_text("config.json", ""), "config.json is not JSON: it has 0 bytes"),
    "config is a list": (_text("config.json", "[]"), "config.json is .*must be a JSON object"),
    "config is deep": (_text("config.json", DEEP), "config.json is nested too deep"),
    "config is no UTF-8": (_text("config.json", b"\xff{}"), "config.json is no UTF-8"),
    "config is long": (_text("config.json", " " * 2**20 + "{}"), "config.json is longer"),
    "config is a pipe": (_fifo("config.json"), "config.json is no regular file"),
    "config is a link to a device": (_link("config.json", "/dev/zero"), "config.json is a link out"),
    "config is a link out": (_outside("config.json"), "config.json is a link out"),
    "config has no end": (_text("config.json", '{"a": ' + "9" * 6000 + "}"), "config.json is not JSON"),
    "weights are a link out": (_outside("model.safetensors"), "model.safetensors is a link out"),
    "weights are a pipe": (_fifo("model.safetensors"), "model.safetensors is no regular file"),
    "tokenizer is a link out": (_outside("tokenizer.json"), "tokenizer.json is a link out"),
    "template is a link out": (_link("chat_template.jinja", "/etc/passwd"), "chat_template.jinja is a link out"),
    "no model type": (_config(model_type=...), "no field 'model_type'"),
    "model type is a number": (_config(model_type=7), "model_type is 7"),
    "layers are text": (_config(num_hidden_layers="1"), "num_hidden_layers is '1'"),
    "layers are a float": (_config(num_hidden_layers=1.0), "num_hidden_layers is 1.0"),
    "layers are true": (_config(num_hidden_layers=True), "num_hidden_layers is True"),
    "2 layers": (_config(num_hidden_layers=2), "has no tensor 'model.layers.1"),
    "10^9 layers": (_config(num_hidden_layers=10**9), "num_hidden_layers is 1000000000: must be"),
    "10^30 layers": (_config(num_hidden_layers=10**30), "num_hidden_layers is 10*: must be"),
    "vocabulary of 2 billion": (_config(vocab_size=2**31 - 1), "embed_tokens.weight has the shape"),
    "vocabulary of 10^30": (_config(vocab_size=10**30), "vocab_size is 10"),
    "vocabulary below the tokenizer's": (_config(vocab_size=7), "embed_tokens.weight has the shape"),
    "negative vocabulary": (_config(vocab_size=-1), "vocab_size is -1"),
    "no heads": (_config(num_attention_heads=0), "num_attention_heads is 0"),
    "heads beyond the width": (_config(num_attention_heads=33), "num_attention_heads is 33"),
    "key heads that divide nothing": (
        _config(num_attention_heads=4, num_key_value_heads=3),
        "num_key_value_heads is 3",
    ),
    "odd size of heads": (_config(head_dim=15), "head_dim.* is 15"),
    "huge size of heads": (_config(head_dim=2**20), "head_dim is 1048576"),
    "context of 10^12": (_config(max_position_embeddings=10**12), "max_position_embeddings is 1000000000000"),
    "context is negative": (_config(max_position_embeddings=-5), "max_position_embeddings is -5"),
    "eps is infinite": (_config(rms_norm_eps=float("inf")), "rms_norm_eps is inf"),
    "eps is text": (_config(rms_norm_eps="small"), "rms_norm_eps is 'small'"),
    "theta is NaN": (_config(rope_theta=float("nan")), "rope_theta is nan"),
    "theta is 10^400": (_config(rope_theta=10**400), "rope_theta is"),
    "scaling is text": (_config(rope_scaling="linear"), "rope_scaling is 'linear'"),
    "tied is text": (_config(tie_word_embeddings="yes"), "tie_word_embeddings is 'yes'"),
    "name is a list": (_config(_name_or_path=["x"]), "_name_or_path is"),
    "name has no end": (_config(model_type="x" * 500_000), "model architecture"),
    "end token is text": (_config(eos_token_id="</s>"), "eos_token_id is '</s>'"),
    "end token outside": (
        lambda folder: (_config(eos_token_id=10**9)(folder), _text("tokenizer_config.json", "{}")(folder)),
        "eos_token_id is .1000000000.: must have one below",
    ),
    "end token is deep": (_config(eos_token_id=[[1]]), "eos_token_id is"),
    "tokenizer is empty": (_text("tokenizer.json", ""), "tokenizer.json is not JSON: it has 0 bytes"),
    "tokenizer is a list": (_text("tokenizer.json", "[]"), "tokenizer.json is .*must be a JSON object"),
    "tokenizer is deep": (_text("tokenizer.json", DEEP), "tokenizer.json is nested too deep"),
    "tokenizer has no model": (_tokenizer(lambda d: d.pop("model")), "tokenizer.json is none"),
    "decoder is text": (_tokenizer(lambda d: d.update(decoder="ByteLevel")), "decoder is 'ByteLevel'"),
    "token of 4 billion": (_tokenizer(lambda d: d["model"]["vocab"].update(a=2**32 - 1)), "token id 4294967295"),
    "negative token": (_tokenizer(lambda d: d["model"]["vocab"].update(a=-1)), "tokenizer.json is none"),
    "merge of unknown tokens": (
        _tokenizer(lambda d: d["model"].update(merges=[["zz", "y"]])),
        "tokenizer.json is none",
    ),
    "bad regex": (
        _tokenizer(
            lambda d: d.update(
                pre_tokenizer={"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated", "invert": False}
            )
        ),
        r"tokenizer.json: pre_tokenizer.pattern.Regex is '\(\(': must be a pattern",
    ),
    "special token is a number": (_text("tokenizer_config.json", '{"eos_token": 5}'), "eos_token is 5"),
    "special token has no text": (_text("tokenizer_config.json", '{"eos_token": {}}'), "has no field 'content'"),
    "template is a number": (_text("tokenizer_config.json", '{"chat_template": 5}'), "chat_template is 5"),
    "template is no UTF-8": (_text("chat_template.jinja", b"\xff\xfe"), "chat_template.jinja is no UTF-8"),
    "weights are empty": (
        _text("model.safetensors", b""),
        "model.safetensors is not a readable safetensors file: it has 0 bytes",
    ),
    "header of 2^64": (_header_size(2**64 - 1), "model.safetensors is not a readable"),
    "header beyond the file": (_header_size(2**26), "model.safetensors is not a readable"),
    "tensor beyond the file": (
        _header(lambda d: d[NORM].update(data_offsets=[0, 2**40])),
        "model.safetensors is not a readable",
    ),
    "tensor of 2^62": (_header(lambda d: d[NORM].update(shape=[2**62])), "model.safetensors is not a readable"),
    "tensor of another shape": (
        _header(lambda d: d[NORM].update(shape=[4, 8])),
        "norm.weight has the shape \\[4, 8\\]",
    ),
    "tensor of whole numbers": (_header(lambda d: d[NORM].update(dtype="I32")), "is of I32: must be of F64"),
    "tensor of an unknown type": (_header(lambda d: d[NORM].update(dtype="Q7")), "model.safetensors is not a readable"),
    "no such tensor": (_header(lambda d: d.update(x=d.pop(EMBED))), "has no tensor 'model.embed_tokens.weight'"),
}


def test_the_sound_folder_loads(folder: Path, load: Load) -> None:
    load(folder)


def test_links_inside_the_folder_and_the_hubs_cache_load(sound_folder: Path, load: Load, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0a1b2c"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sound_folder.iterdir()):
        (blobs / str(number)).write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    load(snapshot)


def test_an_index_leads_out_of_no_folder(folder: Path, load: Load) -> None:
    """What it names is opened where it is one of the folder's own files."""
    index = {"weight_map": {NORM: "../../etc/passwd", EMBED: "/dev/zero"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    load(folder)
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    with pytest.raises(ModelError, match=r"index\.json names '../../etc/passwd', '/dev/zero': must be a file in"):
        load(folder)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("case", CASES)
def test_a_lie_is_named(case: str, folder: Path, load: Load) -> None:
    change, words = CASES[case]
    change(folder)
    with pytest.raises(ModelError, match=words) as refused:
        load(folder)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
def test_mutations_load_or_are_refused(name: str, folder: Path, load: Load) -> None:
    sound = (folder / name).read_bytes()
    head = min(len(sound), 2000)
    for seed in range(60):
        chance, data = random.Random(seed), bytearray(sound)
        for _ in range(chance.choice((1, 1, 3))):
            at = chance.randrange(min(head, len(data)))
            match chance.randrange(4):
                case 0:
                    data[at] = chance.randrange(256)
                case 1:
                    data[at : at + 1] = chance.choice((b"9999999999", b"-", b"null", b"[[", b'"', b"{}", b"1e999"))
                case 2:
                    del data[at : at + chance.randrange(1, 40)]
                case 3:
                    del data[at:]
            if not data:
                break
        (folder / name).write_bytes(data)
        fault = None
        try:
            load(folder)
        except ModelError as refused:
            fault = repr(refused) if "\n" in str(refused) else None
        except Exception as error:
            fault = repr(error)
        assert fault is None, f"seed {seed}"
