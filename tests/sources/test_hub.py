"""Models from the hub: what is requested, what is believed, and why something is refused."""

import re
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
from tests.sources.loopback_hub import LoopbackHub, sha256
from tests.sources.model_files import AT_ONCE, model_files

from paternoster_sources import errors
from paternoster_sources.fetch import fetch_model
from paternoster_sources.report import log_progress
from paternoster_sources.storage.cache import DownloadCache

WEIGHTS = "model.safetensors"


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_model_is_what_is_read_of_it_and_nothing_that_runs(hub: LoopbackHub, cache: DownloadCache) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    model = fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert model.format == "safetensors"
    assert model.revision == "a" * 40
    assert model.path.name == "tiny", "the name under which it is served"
    assert names(model.path) == {"config.json", "tokenizer.json", WEIGHTS}
    assert all((model.path / name).read_bytes() == files[name] for name in names(model.path))
    assert all(file.is_file() and not file.is_symlink() for file in model.path.iterdir())


def test_files_are_asked_for_by_the_commit_that_was_listed(hub: LoopbackHub, cache: DownloadCache) -> None:
    hub.add("org/tiny", model_files(), commit="c" * 40)
    fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert {request.path.split("/")[4] for request in hub.hub.received if "/resolve/" in request.path} == {"c" * 40}


def test_the_hub_is_asked_for_the_model_alone_and_no_address_is_logged(
    hub: LoopbackHub, cache: DownloadCache, caplog: pytest.LogCaptureFixture
) -> None:
    """A CDN's addresses are signed."""
    hub.add("org/tiny", model_files())
    with caplog.at_level("INFO"):
        fetch_model("hf://org/tiny", cache, report=log_progress("hf://org/tiny"), retry=AT_ONCE)
    paths = [request.path for request in hub.hub.received]
    assert [path for path in paths if "/resolve/" not in path] == ["/api/models/org/tiny/revision/main"]
    assert "/blobs/" not in caplog.text
    assert "model hf://org/tiny: its 0 MiB are here" in caplog.text


def test_a_cached_model_needs_no_network(hub: LoopbackHub, cache: DownloadCache) -> None:
    hub.add("org/tiny", model_files())
    first = fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    num_requests = len(hub.hub.received)
    assert fetch_model("hf://org/tiny", cache, retry=AT_ONCE).path == first.path
    assert len(hub.hub.received) == num_requests


def test_a_refresh_follows_the_branch_and_keeps_what_is_the_same(hub: LoopbackHub, cache: DownloadCache) -> None:
    hub.add("org/tiny", model_files())
    first = fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert fetch_model("hf://org/tiny", cache, refresh=True, retry=AT_ONCE).path == first.path
    assert len(hub.cdn.received) == 2, "tokenizer and weights, once"
    hub.add("org/tiny", model_files(seed=9), commit="b" * 40)
    assert fetch_model("hf://org/tiny", cache, retry=AT_ONCE).path == first.path
    second = fetch_model("hf://org/tiny", cache, refresh=True, retry=AT_ONCE)
    assert second.revision == "b" * 40
    assert fetch_model("hf://org/tiny", cache, retry=AT_ONCE).path == second.path
    assert first.path.exists()


@pytest.mark.parametrize("revision", ["v1", "refs/pr/1", "a" * 40, "feature%2Fx"])
def test_revisions(hub: LoopbackHub, cache: DownloadCache, revision: str) -> None:
    hub.add("org/tiny", model_files(), branches=("v1", "refs/pr/1", "feature/x"))
    assert fetch_model(f"hf://org/tiny@{revision}", cache, retry=AT_ONCE).revision == "a" * 40


def test_one_gguf_file_of_several(hub: LoopbackHub, cache: DownloadCache) -> None:
    hub.add("org/tiny", {"a-Q8_0.gguf": b"q8" * 999, "sub/b-Q4_0.gguf": b"q4" * 999, "README.md": b""})
    with pytest.raises(errors.AmbiguousWeights, match=r"has 2 \.gguf files.*a-Q8_0\.gguf, sub/b-Q4_0\.gguf"):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    model = fetch_model("hf://org/tiny/sub/b-Q4_0.gguf", cache, retry=AT_ONCE)
    assert model.format == "gguf"
    assert model.path.read_bytes() == b"q4" * 999
    assert fetch_model("hf://org/tiny@main/a-Q8_0.gguf", cache, retry=AT_ONCE).path.read_bytes() == b"q8" * 999


def test_a_token_goes_to_the_hub_and_not_to_the_cdn(
    hub: LoopbackHub, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/tiny", model_files(), private=True)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert {request.authorization for request in hub.hub.received} == {f"Bearer {hub.token}"}
    assert {request.authorization for request in hub.cdn.received} == {None}


def test_after_a_break_only_the_rest_is_asked_for(hub: LoopbackHub, cache: DownloadCache) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    path, size = hub.blob_path(files[WEIGHTS]), len(files[WEIGHTS])
    hub.cdn.breaks[path] = [size * 3 // 10]
    model = fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert (model.path / WEIGHTS).read_bytes() == files[WEIGHTS]
    first, second = hub.cdn.of(path)
    assert (first.start, first.sent) == (0, size * 3 // 10)
    assert (second.start, second.sent) == (size * 3 // 10, size - size * 3 // 10)


def test_a_later_process_goes_on_where_one_gave_up(hub: LoopbackHub, cache: DownloadCache) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    path, size = hub.blob_path(files[WEIGHTS]), len(files[WEIGHTS])
    hub.cdn.breaks[path] = [size * 3 // 10, 0, 0]
    with pytest.raises(errors.Unreachable, match=f"{WEIGHTS}: .*tried 3 times"):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert cache.find_model("hf://org/tiny") is None
    before = len(hub.cdn.of(path))
    fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    (again,) = hub.cdn.of(path)[before:]
    assert (again.start, again.sent) == (size * 3 // 10, size - size * 3 // 10)


def test_a_server_that_gives_no_ranges_is_read_from_the_beginning(hub: LoopbackHub, cache: DownloadCache) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    answer = hub.cdn.answer

    def whole(path: str, headers: dict[str, str]) -> object:
        changed = answer(path, headers)
        changed.ranges = False
        return changed

    hub.cdn.answer = whole  # type: ignore[assignment]
    hub.cdn.breaks[hub.blob_path(files[WEIGHTS])] = [1000]
    model = fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert (model.path / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_corrupted_bytes_are_refused_and_fetched_anew_when_mended(hub: LoopbackHub, cache: DownloadCache) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    right, digest = files[WEIGHTS], sha256(files[WEIGHTS])
    hub.blobs[digest] = right[:-1] + bytes([right[-1] ^ 1])
    with pytest.raises(errors.Corrupted, match=f"{WEIGHTS}: the sha256 of what came .* must be {digest}"):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert cache.find_model("hf://org/tiny") is None
    hub.blobs[digest] = right
    assert (fetch_model("hf://org/tiny", cache, retry=AT_ONCE).path / WEIGHTS).read_bytes() == right


def test_corrupted_git_blobs_are_refused(hub: LoopbackHub, cache: DownloadCache) -> None:
    repo = hub.add("org/tiny", model_files())
    listed = [{"rfilename": "config.json", "size": 39, "blobId": "0" * 40}, _lfs(WEIGHTS, repo.files[WEIGHTS])]
    repo.listing["siblings"] = listed
    with pytest.raises(errors.Corrupted, match=r"config\.json: the git-sha1 .* must be 0000"):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)


def test_what_lay_on_disk_wrong_is_fetched_again(hub: LoopbackHub, cache: DownloadCache) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    path, size = hub.blob_path(files[WEIGHTS]), len(files[WEIGHTS])
    hub.cdn.breaks[path] = [size // 2, 0, 0]
    with pytest.raises(errors.Unreachable):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    (partial,) = cache.folder.rglob(WEIGHTS)
    with partial.open("r+b") as file:
        file.write(b"wrong")
    assert (fetch_model("hf://org/tiny", cache, retry=AT_ONCE).path / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_a_file_of_another_size_than_listed(hub: LoopbackHub, cache: DownloadCache) -> None:
    files = model_files()
    hub.add("org/tiny", files)
    hub.blobs[sha256(files[WEIGHTS])] = files[WEIGHTS] + b"more"
    with pytest.raises(errors.Corrupted, match=f"{WEIGHTS}: has 300004 bytes, was listed with 300000"):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)


def test_a_missing_repository_is_named(hub: LoopbackHub, cache: DownloadCache) -> None:
    with pytest.raises(errors.SourceNotFound, match=r"hf://org/none.*no repository org/none on http.*HF_TOKEN"):
        fetch_model("hf://org/none", cache, retry=AT_ONCE)


def test_a_private_repository_without_a_token(
    hub: LoopbackHub, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/tiny", model_files(), private=True)
    with pytest.raises(errors.SourceNotFound, match="or it is private"):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert fetch_model("hf://org/tiny", cache, retry=AT_ONCE).path.exists()


def test_a_wrong_token(hub: LoopbackHub, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("org/tiny", model_files())
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(errors.Unauthorized, match=r"answers 401 \(the token that was sent\)") as caught:
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert "hf_wrong" not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert fetch_model("hf://org/tiny", cache, retry=AT_ONCE).path.exists()


@pytest.mark.parametrize("token", [None, LoopbackHub.token])
def test_a_gated_model(
    hub: LoopbackHub, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    repo = hub.add("org/tiny", model_files(), gated=True)
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(errors.GatedModel, match=rf"terms must be accepted on {hub.url}/org/tiny"):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    repo.gated = False
    assert fetch_model("hf://org/tiny", cache, retry=AT_ONCE).path.exists()


def test_a_missing_revision(hub: LoopbackHub, cache: DownloadCache) -> None:
    hub.add("org/tiny", model_files())
    with pytest.raises(errors.RevisionNotFound, match="'v9' is no branch, tag or commit of org/tiny"):
        fetch_model("hf://org/tiny@v9", cache, retry=AT_ONCE)


def test_a_repository_of_pickles_alone(hub: LoopbackHub, cache: DownloadCache) -> None:
    hub.add("org/tiny", {"config.json": b"{}", "pytorch_model.bin": b"x", "modeling.py": b"x"})
    with pytest.raises(errors.UnsafeWeights, match=r"only as pytorch_model\.bin.*allowed: \*\.safetensors"):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert not any("/resolve/" in request.path for request in hub.hub.received)


def test_a_repository_of_words(hub: LoopbackHub, cache: DownloadCache) -> None:
    hub.add("org/tiny", {"README.md": b"x"})
    with pytest.raises(errors.NoWeights, match=r"no weights among README\.md"):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)


@pytest.mark.parametrize(
    "listing",
    [
        {"siblings": [{"rfilename": "../../../etc/cron.d/x.json", "size": 1, "blobId": "0" * 40}]},
        {"siblings": [{"rfilename": "/etc/x.gguf", "size": 1, "blobId": "0" * 40}]},
        {"siblings": [{"rfilename": "a.gguf", "size": -1, "blobId": "0" * 40}]},
        {"siblings": [{"rfilename": "a.gguf", "blobId": "0" * 40}]},
        {"siblings": [{"rfilename": "a.gguf", "size": 1, "blobId": "nothing"}]},
        {"siblings": [{"rfilename": "a.gguf", "size": 1, "blobId": "0" * 40}] * 2},
        {"siblings": [{"rfilename": "a.gguf", "size": 1}]},
        {"siblings": "many"},
        {"sha": "../../somewhere"},
    ],
)
def test_a_listing_that_no_hub_gives(hub: LoopbackHub, cache: DownloadCache, listing: dict[str, object]) -> None:
    hub.add("org/tiny", model_files(), listing=listing)
    with pytest.raises(errors.UnsafeListing):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert not any("/resolve/" in request.path for request in hub.hub.received)


def test_a_model_larger_than_any(hub: LoopbackHub, cache: DownloadCache) -> None:
    huge = {"rfilename": "a.gguf", "size": 2**50, "blobId": "0" * 40}
    hub.add("org/tiny", model_files(), listing={"siblings": [huge]})
    with pytest.raises(errors.TooLarge, match=rf"a\.gguf' has {2**50} bytes: must be at most"):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)


def test_nobody_there(cache: DownloadCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(errors.Unreachable, match=r"hf://org/tiny.*127\.0\.0\.1: .*tried 3 times"):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)


def test_offline(hub: LoopbackHub, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("org/tiny", model_files())
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(errors.NotCached, match=re.escape("$HF_HUB_OFFLINE")):
        fetch_model("hf://org/tiny", cache, retry=AT_ONCE)
    assert hub.hub.received == []


def _lfs(name: str, data: bytes) -> dict[str, object]:
    return {
        "rfilename": name,
        "size": len(data),
        "blobId": "0" * 40,
        "lfs": {"size": len(data), "sha256": sha256(data)},
    }


def test_the_hub_of_these_tests_answers_as_the_library_of_the_real_one_expects(
    hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own client, in full: otherwise we would only agree with ourselves."""
    files = model_files()
    hub.add("org/tiny", files, private=True)
    hub.add("org/gated", files, gated=True)
    api = HfApi(endpoint=hub.url, token=hub.token)
    info = api.model_info("org/tiny", files_metadata=True)
    assert info.sha == "a" * 40
    assert {file.rfilename: file.size for file in info.siblings or ()} == {n: len(data) for n, data in files.items()}
    for name, data in files.items():
        path = api.hf_hub_download("org/tiny", name, revision=info.sha, cache_dir=tmp_path / "theirs")
        assert Path(path).read_bytes() == data
    with pytest.raises(GatedRepoError):
        api.hf_hub_download("org/gated", "config.json", cache_dir=tmp_path / "theirs")
    with pytest.raises(RevisionNotFoundError):
        api.model_info("org/tiny", revision="v9")
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("org/none")
