"""Addresses, names and plans: whatever somebody writes or a server says."""

from pathlib import PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paternoster_sources import names
from paternoster_sources.address import Address, is_remote, parse_address
from paternoster_sources.errors import AmbiguousWeights, InvalidAddress, NoWeights, SourceError, UnsafeListing
from paternoster_sources.plan import LARGEST_MODEL, MOST_FILES, Digest, Listing, RemoteFile, make_plan

TINY = parse_address("hf://org/tiny")
PARTS = st.sampled_from(
    ["a", "..", ".", "", "config.json", "model.safetensors", "x.gguf", "\0", "\\", "ü", "a" * 300, "~"]
)
HOSTILE = st.lists(PARTS, max_size=4).map("/".join) | st.text(max_size=30)
FILES = st.builds(
    RemoteFile,
    HOSTILE
    | st.sampled_from(
        [
            "config.json",
            "tokenizer.json",
            "model.safetensors",
            "b.safetensors",
            "a.gguf",
            "s-00001-of-00002.gguf",
            "s-00002-of-00002.gguf",
            "m.bin",
        ]
    ),
    st.integers(-1, 2**50) | st.integers(0, 1000),
    st.none() | st.just(Digest("sha256", "0" * 64)),
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("hf://org/tiny", {"scheme": "hf", "place": "org/tiny"}),
        ("hf://org/tiny@v1.0", {"scheme": "hf", "place": "org/tiny", "revision": "v1.0"}),
        ("hf://org/tiny@v1/a/b.gguf", {"scheme": "hf", "place": "org/tiny", "revision": "v1", "file": "a/b.gguf"}),
        ("hf://org/tiny@refs/pr/3", {"scheme": "hf", "place": "org/tiny", "revision": "refs/pr/3"}),
        (
            "hf://org/tiny@refs/pr/3/a.gguf",
            {"scheme": "hf", "place": "org/tiny", "revision": "refs/pr/3", "file": "a.gguf"},
        ),
        ("hf://org/tiny@a%2Fb", {"scheme": "hf", "place": "org/tiny", "revision": "a/b"}),
        ("hf://org/tiny/a@b.gguf", {"scheme": "hf", "place": "org/tiny", "file": "a@b.gguf"}),
        ("s3://bucket", {"scheme": "s3", "place": "bucket"}),
        ("s3://bucket/a/b/", {"scheme": "s3", "place": "bucket", "prefix": "a/b"}),
        ("gs://bucket/a/b.gguf", {"scheme": "gs", "place": "bucket", "prefix": "a", "file": "b.gguf"}),
        ("https://host:8443/a/b.gguf", {"scheme": "https", "place": "host:8443", "file": "a/b.gguf"}),
        (
            f"https://host/b.gguf#sha256={'A' * 64}",
            {"scheme": "https", "place": "host", "file": "b.gguf", "sha256": "a" * 64},
        ),
    ],
)
def test_addresses(text: str, address: dict[str, str]) -> None:
    assert parse_address(text) == Address(text, **address)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "hf://", "hf://tiny", "hf://org/", "hf://org/ti ny", "hf://org/../x", "hf://org/tiny@", "hf://org/tiny@../x",
        "hf://org/tiny/pytorch_model.bin", "hf://org/tiny/../a.gguf", "hf://org/tiny?x=1", "hf://org/tiny#x", "s3://",
        "s3:///a", "s3://bucket/../a", "s3://bucket//a", "gs://b\\a/x", "https://host/", "https://host/a.bin",
        "https:///a.gguf", "https://host/a.gguf?token=secret", "https://user:secret@host/a.gguf",
        "https://host/a.gguf#md5=1", "https://host/a.gguf#sha256=1", "https://host:port/a.gguf", "ftp://host/a.gguf",
        "http://host/a.gguf", "model.gguf", "", "hf://org/tiny\n", "https://host/%2e%2e/a.gguf",
        "s3://bucket/" + "a" * 3000, "https://./a.gguf", "https://../a.gguf",
        f"https://{'a' * 256}/a.gguf",
    ],
)  # fmt: skip
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(InvalidAddress) as caught:
        parse_address(text)
    assert "secret" not in str(caught.value)


@example("https://./.gguf")
@example("https://../.gguf")
@given(st.text(max_size=60) | st.builds("{}://{}".format, st.sampled_from(["hf", "s3", "gs", "https"]), HOSTILE))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = parse_address(text)
    except InvalidAddress:
        return
    assert is_remote(text)
    assert address.text == text
    assert address.name
    assert PurePosixPath(address.name).name == address.name, "it names a folder of the cache"
    assert address.name not in (".", "..")
    if address.file is not None:
        assert names.check_name(address.file).endswith(".gguf")


@given(HOSTILE)
def test_a_name_that_is_believed_leads_below_where_it_starts(name: str) -> None:
    try:
        names.check_name(name)
    except UnsafeListing:
        return
    path = PurePosixPath("/cache") / name
    assert path.is_relative_to("/cache")
    assert ".." not in path.parts
    assert path != PurePosixPath("/cache")
    assert str(path) == f"/cache/{name}", "nothing of it was left out"
    assert "\0" not in name


@given(st.lists(FILES, max_size=8))
def test_any_listing_gives_a_plan_or_a_reason(files: list[RemoteFile]) -> None:
    try:
        plan = make_plan(TINY, Listing(tuple(files), "c" * 40))
    except SourceError:
        return
    assert plan.files
    assert set(plan.files) <= set(files)
    assert all(
        names.is_gguf(file.name) or names.is_safetensors(file.name) or names.is_side_file(file.name)
        for file in plan.files
    )
    targets = [names.base_name(file.name) for file in plan.files]
    assert len(set(targets)) == len(targets), "no file lands on another"
    assert 0 <= plan.total <= LARGEST_MODEL
    assert len(plan.files) <= MOST_FILES
    if plan.format == "gguf":
        assert [file.name for file in plan.files] == names.parts_of(plan.files[0].name)
    else:
        assert "config.json" in targets


@pytest.mark.parametrize("empty", ["model.safetensors", "config.json", "tokenizer.json", "a.gguf"])
def test_an_empty_file_is_no_part_of_a_model(empty: str) -> None:
    present = [empty] if empty == "a.gguf" else ["config.json", "tokenizer.json", "merges.txt", "model.safetensors"]
    files = tuple(RemoteFile(name, 0 if name in (empty, "merges.txt") else 9) for name in present)
    with pytest.raises(NoWeights, match=rf"model 'hf://org/name': '{empty}' has 0 bytes: must have at least 1"):
        make_plan(parse_address("hf://org/name"), Listing(files))


@given(st.lists(st.sampled_from(["config.json", "tokenizer.json", "model.safetensors"]), unique=True, min_size=3))
def test_the_order_of_a_listing_means_nothing(order: list[str]) -> None:
    listing = Listing(tuple(RemoteFile(name, 5) for name in order), "c" * 40)
    usual = Listing(tuple(RemoteFile(name, 5) for name in sorted(order)), "c" * 40)
    assert make_plan(TINY, listing) == make_plan(TINY, usual)
    assert make_plan(TINY, listing).key == make_plan(TINY, usual).key


@pytest.mark.parametrize(
    "change",
    [{"size": 6}, {"version": '"x"'}, {"digest": Digest("md5", "0" * 32)}],
)
def test_other_content_is_another_entry_of_the_cache(change: dict[str, object]) -> None:
    file_fields = {"name": "a.gguf", "size": 5}
    one = make_plan(TINY, Listing((RemoteFile(**file_fields),), "c" * 40))  # type: ignore[arg-type]
    other = make_plan(TINY, Listing((RemoteFile(**file_fields | change),), "c" * 40))  # type: ignore[arg-type]
    assert one.key != other.key
    assert one.key != make_plan(TINY, Listing(one.files, "d" * 40)).key


def names_of(*listed: str, address: str = "hf://org/tiny") -> list[str]:
    plan = make_plan(parse_address(address), Listing(tuple(RemoteFile(name, 5) for name in listed)))
    return [file.name for file in plan.files]


def test_weights_that_a_repository_carries_twice_are_fetched_once() -> None:
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    assert names_of("config.json", "consolidated.safetensors", "tiny.gguf", "adapter_model.safetensors", *shards) == [
        "config.json",
        *shards,
    ]


def test_weights_of_another_name_alone() -> None:
    assert names_of("config.json", "weights.safetensors") == ["config.json", "weights.safetensors"]


def test_what_belongs_to_a_tokenizer_and_templates() -> None:
    side = ["chat_template.jinja", "config.json", "merges.txt", "tokenizer.model", "tokenizer_config.json", "vocab.txt"]
    other = ["README.md", "tokenizer.py", "onnx/model.onnx", "original/config.json", "training_args.bin", "notes.txt"]
    assert names_of("model.safetensors", *side, *other) == sorted(["model.safetensors", *side])


def test_all_parts_of_a_gguf_model_are_fetched() -> None:
    parts = [f"Q4/tiny-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    other = ["Q8/tiny-00001-of-00001.gguf", "mmproj-tiny.gguf"]
    for part in parts:
        assert names_of(*parts, *other, address=f"hf://org/tiny/{part}") == parts
    assert names_of(*parts, "mmproj-tiny.gguf", "imatrix_a.gguf") == parts
    with pytest.raises(AmbiguousWeights, match=r"2 \.gguf files.*: Q4/tiny-00001-of-00003\.gguf, Q8/tiny"):
        names_of(*parts, *other)


@pytest.mark.parametrize(
    ("listed", "missing"),
    [
        (["a-00001-of-00002.gguf"], "a-00002-of-00002.gguf"),
        (["a-00002-of-00003.gguf"], "a-00001-of-00003.gguf, a-00003-of-00003.gguf"),
        (["config.json", "model-00002-of-00002.safetensors"], "model-00001-of-00002.safetensors"),
        (["config.json", "model-00001-of-000002.safetensors"], "model-00002-of-000002.safetensors"),
    ],
)
def test_a_part_that_is_missing_is_named_before_anything_is_fetched(listed: list[str], missing: str) -> None:
    with pytest.raises(NoWeights, match=f"but not {missing}: must have every part"):
        names_of(*listed)


def test_parts_that_are_counted_from_0() -> None:
    """gpt-oss has such parts."""
    shards = [f"model-{number:05d}-of-00002.safetensors" for number in (0, 1, 2)]
    assert names_of("config.json", *shards) == ["config.json", *shards]


def test_one_file_of_weights_and_others_of_the_same() -> None:
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert names_of("config.json", "model.safetensors", "model.fp16.safetensors") == [
        "config.json",
        "model.safetensors",
    ]
    index = "model.safetensors.index.json"
    assert set(names_of("config.json", "model.safetensors", index, *shards)) >= {index, "model.safetensors", *shards}


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        (["adapter_model.safetensors", "adapter_config.json"], "adapter_config.json is of an adapter"),
        (
            ["consolidated.safetensors", "params.json", "tekken.json"],
            "params.json is of Mistral's or Meta's own format",
        ),
        (["config.json", "pytorch_model.bin", "tokenizer.model"], "tokenizer.model is not read: transformers'"),
        (["config.json", "pytorch_model.bin", "tokenizer.json"], "weights in pytorch_model.bin are not read"),
        (["vocab.json", "merges.txt", "config.json"], "vocab.json is not read"),
    ],
)
def test_a_repository_of_another_kind_is_told_what_to_do(listed: list[str], words: str) -> None:
    with pytest.raises(SourceError, match=words):
        names_of(*listed)


def test_many_gguf_files_are_not_all_shown() -> None:
    with pytest.raises(AmbiguousWeights, match="and 80 more") as caught:
        names_of(*(f"{number}.gguf" for number in range(100)))
    assert len(str(caught.value)) < 1000


def test_weights_without_a_configuration() -> None:
    with pytest.raises(NoWeights, match=r"model\.safetensors, but no config\.json"):
        names_of("model.safetensors", "pytorch_model.bin")


def test_every_reason_is_one_word_of_a_condition() -> None:
    """Kubernetes allows ``^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$``."""
    reasons = [kind.__name__ for kind in SourceError.__subclasses__()]
    assert len(reasons) > 10
    assert all(reason.isalpha() and reason[0].isupper() for reason in reasons)
