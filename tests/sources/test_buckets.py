"""Models from S3 and Google Cloud Storage: a real server of the former behind one that breaks connections."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import boto3
import httpx
import pytest
from moto.server import ThreadedMotoServer
from tests.sources.file_server import Answer, FileServer
from tests.sources.model_files import AT_ONCE, model_files

from paternoster_sources import errors
from paternoster_sources.fetch import fetch_model
from paternoster_sources.remote import buckets
from paternoster_sources.storage.cache import DownloadCache

HEADERS_PASSED_ON = ("content-type", "etag", "last-modified")
WEIGHTS = "model.safetensors"
PATH = f"/models/tiny/{WEIGHTS}"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def store(moto: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """In front of the real server, which lets any client in: only the right access key, and ranges that may break."""

    def forward(path: str, headers: dict[str, str]) -> Answer:
        if "authorization" in headers and "Credential=right/" not in headers["authorization"]:
            return Answer(b"<Error><Code>InvalidAccessKeyId</Code></Error>", 403)
        response = httpx.get(moto + path, headers={"authorization": headers.get("authorization", "")}, trust_env=False)
        return Answer(
            response.content,
            response.status_code,
            {name: response.headers[name] for name in HEADERS_PASSED_ON if name in response.headers},
        )

    httpx.post(f"{moto}/moto-api/reset", trust_env=False)
    with FileServer(forward).running() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "right")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield server


@pytest.fixture
def s3(moto: str, store: FileServer) -> Any:
    client = boto3.client("s3", endpoint_url=moto, region_name="us-east-1")
    client.create_bucket(Bucket="models", ACL="public-read")
    return client


def put(s3: Any, prefix: str, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        s3.put_object(Bucket="models", Key=prefix + name, Body=data, ACL="public-read")


def test_a_folder_of_a_bucket(s3: Any, cache: DownloadCache) -> None:
    files = model_files()
    put(s3, "team/tiny/", files)
    put(s3, "team/tiny2/", {"other.json": b"{}"})
    model = fetch_model("s3://models/team/tiny", cache, retry=AT_ONCE)
    assert model.path.name == "tiny"
    assert {file.name: file.read_bytes() for file in model.path.iterdir()} == {
        name: files[name] for name in ("config.json", "tokenizer.json", WEIGHTS)
    }
    assert fetch_model("s3://models/team/tiny/", cache, retry=AT_ONCE).path == model.path


def test_one_file_of_a_bucket(s3: Any, cache: DownloadCache) -> None:
    put(s3, "", {"a.gguf": b"a" * 99, "b.gguf": b"b" * 99})
    assert fetch_model("s3://models/b.gguf", cache, retry=AT_ONCE).path.read_bytes() == b"b" * 99
    with pytest.raises(errors.AmbiguousWeights, match=r"a\.gguf, b\.gguf"):
        fetch_model("s3://models", cache, retry=AT_ONCE)


def test_google_cloud_storage(s3: Any, moto: str, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its XML API is that of S3, so the same server answers."""
    files = model_files()
    put(s3, "tiny/", files)
    account = {"gcs_base_url": moto, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))
    model = fetch_model("gs://models/tiny", cache, retry=AT_ONCE)
    assert (model.path / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_after_a_break_only_the_rest_is_asked_for(
    s3: Any, store: FileServer, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several requests for a file, one of which breaks off."""
    monkeypatch.setattr(buckets, "RANGE", 200_000)
    monkeypatch.setattr(buckets, "CHUNK", 10_000)
    files = model_files(size=500_000)
    put(s3, "tiny/", files)
    store.breaks[PATH] = [150_000]
    model = fetch_model("s3://models/tiny", cache, retry=AT_ONCE)
    assert (model.path / WEIGHTS).read_bytes() == files[WEIGHTS]
    requests = store.of(PATH)
    assert (requests[0].start, requests[0].sent) == (0, 150_000)
    assert 130_000 <= requests[1].start <= 150_000, "what came is kept, but for less than a chunk of the library's"
    assert sum(one.sent for one in requests) <= 500_000 + 20_000


def test_it_goes_on_no_more_than_so_often(s3: Any, store: FileServer, cache: DownloadCache) -> None:
    put(s3, "tiny/", model_files())
    store.breaks[PATH] = [0] * 100
    with pytest.raises(errors.Unreachable, match=f"{WEIGHTS}: .*tried 3 times"):
        fetch_model("s3://models/tiny", cache, retry=AT_ONCE)
    assert len(store.of(PATH)) == AT_ONCE.attempts


def test_corrupted_bytes_are_refused_and_fetched_anew_when_mended(
    s3: Any, store: FileServer, cache: DownloadCache
) -> None:
    files = model_files()
    put(s3, "tiny/", files)
    answer = store.answer

    def corrupted(path: str, headers: dict[str, str]) -> Answer:
        passed_on = answer(path, headers)
        if path == PATH:
            passed_on.body = b"x" + passed_on.body[1:]
        return passed_on

    store.answer = corrupted
    with pytest.raises(errors.Corrupted, match=f"{WEIGHTS}: the md5 of what came"):
        fetch_model("s3://models/tiny", cache, retry=AT_ONCE)
    store.answer = answer
    assert (fetch_model("s3://models/tiny", cache, retry=AT_ONCE).path / WEIGHTS).read_bytes() == files[WEIGHTS]


def test_an_object_put_in_parts_has_no_md5(s3: Any, cache: DownloadCache) -> None:
    data = model_files(size=6 * 2**20)[WEIGHTS]
    put(s3, "tiny/", {"config.json": b"{}"})
    upload = s3.create_multipart_upload(Bucket="models", Key=f"tiny/{WEIGHTS}")["UploadId"]
    where = {"Bucket": "models", "Key": f"tiny/{WEIGHTS}", "UploadId": upload}
    cut = [data[: 5 * 2**20], data[5 * 2**20 :]]
    parts = [
        {"PartNumber": number, "ETag": s3.upload_part(PartNumber=number, Body=part, **where)["ETag"]}
        for number, part in enumerate(cut, 1)
    ]
    s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **where)
    assert (fetch_model("s3://models/tiny", cache, retry=AT_ONCE).path / WEIGHTS).read_bytes() == data


def test_an_object_that_is_replaced_meanwhile(s3: Any, store: FileServer, cache: DownloadCache) -> None:
    """The part that came is of the old object: it must not be joined with the rest of the new one."""
    put(s3, "tiny/", model_files())
    answer = store.answer

    def replacing(path: str, headers: dict[str, str]) -> Answer:
        passed_on = answer(path, headers)
        if path == PATH and headers.get("if-match", passed_on.headers["etag"]) != passed_on.headers["etag"]:
            return Answer(status=412)
        return passed_on

    store.answer = replacing
    store.breaks[PATH] = [100_000]
    original = store._serve

    def serve(handler: Any) -> None:
        original(handler)
        if handler.path == PATH:
            put(s3, "tiny/", {WEIGHTS: model_files(seed=5)[WEIGHTS]})

    store._serve = serve  # type: ignore[method-assign]
    with pytest.raises(errors.Corrupted, match="it changed while it was fetched"):
        fetch_model("s3://models/tiny", cache, retry=AT_ONCE)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("s3://models/none", errors.SourceNotFound),
        ("s3://models/none.gguf", errors.SourceNotFound),
        ("s3://nobucket/tiny", errors.SourceNotFound),
    ],
)
def test_what_is_not_there(
    s3: Any, store: FileServer, cache: DownloadCache, address: str, reason: type[Exception]
) -> None:
    with pytest.raises(reason, match=address):
        fetch_model(address, cache, retry=AT_ONCE)
    assert len(store.received) == 1, "nothing that another attempt would mend"


def test_wrong_credentials(s3: Any, store: FileServer, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch) -> None:
    put(s3, "tiny/", model_files())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wrong")
    with pytest.raises(errors.Unauthorized, match=r"s3://models/tiny.*403 Forbidden: InvalidAccessKeyId") as caught:
        fetch_model("s3://models/tiny", cache, retry=AT_ONCE)
    assert "secret" not in str(caught.value)
    assert len(store.received) == 1
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "right")
    assert fetch_model("s3://models/tiny", cache, retry=AT_ONCE).path.exists()


def test_nobody_there(cache: DownloadCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    with pytest.raises(errors.Unreachable, match=r"s3://models/tiny.*tried 3 times"):
        fetch_model("s3://models/tiny", cache, retry=AT_ONCE)


def test_without_credentials(s3: Any, store: FileServer, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the credentials are a machine's role, which this one has not."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(errors.Unauthorized, match=r"s3://models/tiny.*no credentials .*\$AWS_ACCESS_KEY_ID"):
        fetch_model("s3://models/tiny", cache, retry=AT_ONCE)
    assert store.received == []
