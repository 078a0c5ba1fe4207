"""Settings as vLLM's flags, and further flags that a field owns."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.engines.vllm_arguments import (
    HARMLESS,
    OPERATORS,
    OWNED,
    SHORT,
    VllmKind,
)

RECORDED = Path(__file__).parent / "recorded"
MIDDLEWARE = ["--middleware", "paternoster_vllm.middleware.LimitsMiddleware"]


def launched(**settings: object) -> list[str]:
    return list(VllmKind().launch(EngineArgs.model_validate({"model": "file:///models/m%20x", **settings})).args)


def test_defaults_leave_to_vllm_what_depends_on_the_device() -> None:
    assert launched() == [
        "/models/m x", "--host", "127.0.0.1", "--port", "8000", "--max-num-seqs", "64", "--watermark", "0.01",
        "--shutdown-timeout", "300", "--max-num-queued-reqs", "1088", *MIDDLEWARE,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({"served_model_name": ("m", "n")}, ["--served-model-name", "m", "n"]),
        ({"chat_template": "{{ x }}"}, ["--chat-template", "{{ x }}"]),
        ({"generation_config": "none"}, ["--generation-config", "vllm"]),
        ({"dtype": "float32"}, ["--dtype", "float32"]),
        ({"max_num_seqs": 8}, ["--max-num-seqs", "8"]),
        ({"max_model_len": 512}, ["--max-model-len", "512"]),
        ({"max_batched_tokens": 2048}, ["--max-num-batched-tokens", "2048"]),
        ({"kv_cache_memory": "64Mi"}, ["--kv-cache-memory-bytes", "67108864"]),
        ({"kv_cache_memory": "64Mi", "tensor_parallel_size": 2}, ["--kv-cache-memory-bytes", "33554432"]),
        ({"tensor_parallel_size": 2}, ["--tensor-parallel-size", "2"]),
        ({"block_size": 16}, ["--block-size", "16"]),
        ({"block_size": 32}, ["--block-size", "32"]),
        ({"kv_cache_dtype": "fp8"}, ["--kv-cache-dtype", "fp8"]),
        ({"prefix_cache": False}, ["--no-enable-prefix-caching"]),
        ({"watermark_percent": 5}, ["--watermark", "0.05"]),
        ({"order": "priority"}, ["--scheduling-policy", "priority"]),
        ({"drain_timeout": 20}, ["--shutdown-timeout", "20"]),
        ({"max_queued_requests": 10, "max_num_seqs": 4}, ["--max-num-queued-reqs", "14"]),
    ],
)
def test_a_setting_is_a_flag(settings: dict[str, object], flags: list[str]) -> None:
    args = launched(**settings)
    assert any(args[start : start + len(flags)] == flags for start in range(len(args)))


@pytest.mark.parametrize("settings", [{"kv_cache_memory": 0}, {"order": "fcfs"}, {"speculative": "off"}])
def test_a_setting_that_is_vllms_own_default_is_no_flag(settings: dict[str, object]) -> None:
    assert launched(**settings) == launched()


def test_keys_are_folders_that_the_plugin_reads() -> None:
    settings = EngineArgs(model="file:///m", admin_keys="/keys/admin", api_keys="/keys/api")
    launch = VllmKind().launch(settings, ["--enforce-eager"])
    assert launch.env["PATERNOSTER_VLLM_ADMIN_KEYS"] == "/keys/admin"
    assert launch.env["PATERNOSTER_VLLM_API_KEYS"] == "/keys/api"
    assert launch.args[-1] == "--enforce-eager"
    assert not any("/keys" in word for word in launch.args)


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("--max-num-seqs=4", "--max-num-seqs must not be here: use engine.maxNumSeqs"),
        ("--max_num_seqs", "--max_num_seqs must not be here: use engine.maxNumSeqs"),
        ("--max-num-se", "--max-num-se must not be here: use engine.maxNumSeqs"),
        ("-tp", "-tp must not be here: use resources.gpu.count"),
        ("-dp=2", "-dp must not be here: the operator adds replicas, and the plugin counts one engine core"),
        ("--max-num-active-seqs", "--max-num-active-seqs must not be here: use concurrency.max"),
        ("--api-key=secret", "--api-key must not be here: use security.apiKeySecretRef"),
        ("--port", "--port must not be here: the operator sets it"),
        ("--config=x.yaml", "--config must not be here: a file could set any other flag"),
        ("-n", "-n must not be here: a replica is one pod: the operator adds replicas"),
        ("-n2", "-n2 must not be here: a replica is one pod: the operator adds replicas"),
        ("-r", "-r must not be here: a replica is one pod: the operator adds replicas"),
        (
            "--data-parallel-rank=1",
            "--data-parallel-rank must not be here: the operator adds replicas, and the plugin counts one engine core",
        ),
        ("-dpn", "-dpn must not be here: the operator adds replicas, and the plugin counts one engine core"),
        ("--grpc", "--grpc must not be here: gateways speak HTTP to engines"),
        ("--runner=pooling", "--runner must not be here: only generation is supported on vLLM yet"),
        ("--lora-modules", "--lora-modules must not be here: gateways have routes to model.servedName alone"),
        ("--no-enable-prefix-caching", "--no-enable-prefix-caching must not be here: use engine.prefixCache"),
        ("--disable-prefix-caching", "--disable-prefix-caching must not be here: use engine.prefixCache"),
        ("--convert=embed", "--convert must not be here: only generation is supported on vLLM yet"),
        (
            "--disable-chunked-prefill",
            "--disable-chunked-prefill must not be here: a prompt that is longer than the live token budget would "
            "never run",
        ),
        ("--ssl-ca-certs", "--ssl-ca-certs must not be here: gateways speak HTTP to engines"),
        ("--master-addr", "--master-addr must not be here: a replica is one pod: the operator adds replicas"),
        (
            "-dpa=x",
            "-dpa must not be here: the operator adds replicas, and the plugin counts one engine core",
        ),
        (
            "--enable-elastic-ep",
            "--enable-elastic-ep must not be here: the operator adds replicas, and the plugin counts one engine core",
        ),
        (
            "--tokens-only",
            "--tokens-only must not be here: gateways send requests of the OpenAI API, which it takes away",
        ),
        (
            "--skip-tokenizer-init",
            "--skip-tokenizer-init must not be here: requests have text, which only a tokenizer turns into tokens",
        ),
        ("-h", "-h must not be here: vLLM would print its flags and end"),
        *(
            (
                word,
                f"{word.partition('=')[0]} must not be here: vLLM has one process for each of resources.gpu.count, and "
                "--tensor-parallel-size has them all: raise the count, or spec.replicas",
            )
            for word in ("-pp=2", "--pipeline-parallel-size=2", "--pipeline", "-pcp=2", "--prefill-context=2")
        ),
    ],
)
def test_a_flag_that_a_field_owns_is_refused_by_name(word: str, line: str) -> None:
    assert VllmKind().find_owned_flags(["--enforce-eager", word, "value"]) == [line]


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--runner=auto", "--enforce-eager"],
        ["--enforce-eager"],
        ["--model-impl=vllm"],
        ["--quantization", "awq"],
        ["--watermark-config={}"],
        ["-O3"],
        ["-sc", "{}"],
        ["-q", "awq"],
        ["-pp=1", "--pipeline-parallel-size", "1"],
        ["--runner=generate"],
        ["--runner", "auto"],
        ["--convert", "none"],
        ["--enable-chunked-prefill"],
        ["--disable-elastic-ep"],
    ],
)
def test_other_flags_pass(args: list[str]) -> None:
    assert VllmKind().find_owned_flags(args) == []


FLAGS_OF_0_33 = [
    tuple(line.split())
    for line in (RECORDED / "vllm-0.33-flags.txt").read_text().splitlines()
    if not line.startswith("#")
]
"""Verdicts on flags, each before the names of one."""


@pytest.mark.parametrize(("verdict", "name"), [(line[0], name) for line in FLAGS_OF_0_33 for name in line[1:]])
def test_each_flag_of_its_parser_is_refused_or_passes(verdict: str, name: str) -> None:
    """A flag that passes is not taken for one of those that are refused, cut short."""
    assert bool(VllmKind().find_owned_flags([name, "value"])) == {"refused": True, "passes": False}[verdict]


class RaisingParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def resolve_cut_names() -> Iterator[tuple[str, str]]:
    """Each name cut short that an argparse parser of these flags completes, as vLLM's is one, and the verdict on it."""
    parser = RaisingParser(add_help=False)
    for number, (_, *names) in enumerate(FLAGS_OF_0_33):
        parser.add_argument(*names, dest=str(number), nargs="?")
    whole = {name for _, *names in FLAGS_OF_0_33 for name in names}
    cut = {name[:length] for name in whole for length in range(2, len(name))} - whole - {"--"}
    for name in sorted(cut):
        try:
            found, rest = parser.parse_known_args([name, "value"])
        except ValueError:
            continue  # it begins several
        if not rest:
            (number,) = (int(key) for key, value in vars(found).items() if value is not None)
            yield FLAGS_OF_0_33[number][0], name


def test_a_name_cut_short_has_the_verdict_of_its_flag() -> None:
    cut = list(resolve_cut_names())
    assert len(cut) > 1000
    wrong = [
        (verdict, name)
        for verdict, name in cut
        if bool(VllmKind().find_owned_flags([name, "value"])) != (verdict == "refused")
    ]
    assert wrong == []


@pytest.mark.parametrize("word", ["-t", "-t=2", "-as"])
def test_a_short_name_cut_short_is_refused(word: str) -> None:
    (line,) = VllmKind().find_owned_flags([word, "2"])
    assert line.startswith(f"{word.partition('=')[0]} must not be here: ")


def test_a_flag_that_is_refused_is_one_of_its_parser() -> None:
    names = {name for line in FLAGS_OF_0_33 for name in line[1:]}
    assert {f"--{flag}" for flag in (*OWNED, *OPERATORS)} <= names
    assert {f"-{flag}" for flag in SHORT} <= names
    assert HARMLESS.keys() <= OPERATORS.keys()


def test_an_owned_flag_names_a_field_of_the_resource() -> None:
    sections = {field.partition(".")[0] for field in OWNED.values()}
    assert sections <= {"model", "engine", "resources", "concurrency", "drain", "security"}
