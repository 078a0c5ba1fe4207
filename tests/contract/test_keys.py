"""Bearer keys: made, compared, and read again while their files change."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.access import key_files, keys
from paternoster_contract.access.key_files import KeyFiles

_WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1, max_size=40)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += key_files.REREAD_SECONDS
        return self.now


@given(_WORDS, _WORDS, st.lists(_WORDS, min_size=1, max_size=4))
def test_a_derived_key_belongs_to_its_root_purpose_and_subject_alone(
    root: str, other: str, subjects: list[str]
) -> None:
    made = {keys.derive_key(each, keys.GATEWAY_TO_ENGINE, subject) for each in (root, other) for subject in subjects}
    assert len(made) == len({root, other}) * len(set(subjects))
    assert keys.derive_key(root, keys.OPERATOR_TO_ENGINE, subjects[0]) not in made
    assert keys.derive_key(root, keys.GATEWAY_TO_ENGINE, subjects[0]) in made


@given(st.lists(_WORDS, max_size=4), _WORDS)
def test_a_key_matches_the_digests_that_have_its_own(own_keys: list[str], key: str) -> None:
    assert keys.matches_digest(key, [keys.digest_key(each) for each in own_keys]) == (key in own_keys)


@given(st.lists(_WORDS, unique=True, max_size=5))
def test_what_is_written_a_line_each_is_parsed(wanted: list[str]) -> None:
    assert keys.parse_keys("\r\n\n".join(f"  {key} " for key in wanted)) == tuple(wanted)


def test_the_scheme_of_a_bearer_key_has_no_case_and_no_other_is_one() -> None:
    assert [keys.read_bearer_key(text) for text in ("Bearer a", "bearer  a ", "Basic a", "a", "")] == [
        "a",
        "a",
        "",
        "",
        "",
    ]


def test_a_client_shows_its_key_in_either_header() -> None:
    found = [
        keys.client_key(headers)
        for headers in (
            {"authorization": "Bearer a"},
            {"x-api-key": " a "},
            {"authorization": "Bearer a", "x-api-key": "b"},
            {"authorization": "Basic b", "x-api-key": "a"},
            {},
        )
    ]
    assert found == ["a", "a", "a", "a", ""]


def test_files_of_a_folder_are_read_again_and_two_keys_are_valid_meanwhile(tmp_path: Path) -> None:
    found = KeyFiles(tmp_path, Clock())
    assert found.keys == () == found.digests
    (tmp_path / "key").write_text("old\n")
    assert found.keys == ("old",)
    (tmp_path / "key").write_text("new\nold\n")
    assert found.keys == ("new", "old")
    assert found.digests == (keys.digest_key("new"), keys.digest_key("old"))
    (tmp_path / "key").write_text("new")
    assert found.keys == ("new",)


def test_a_mounted_secret_is_read_through_the_kubelets_links(tmp_path: Path) -> None:
    """It writes each version into a hidden folder and turns one link."""
    for version in ("one", "two"):
        (tmp_path / f"..{version}").mkdir()
        (tmp_path / f"..{version}" / "key").write_text(version)
    data, link = tmp_path / "..data", tmp_path / "key"
    data.symlink_to("..one")
    link.symlink_to("..data/key")
    found = KeyFiles(tmp_path, Clock())
    assert found.keys == ("one",)
    data.unlink()
    data.symlink_to("..two")
    assert found.keys == ("two",)


def test_a_file_alone_is_read_and_one_that_is_no_list_of_keys_lets_nobody_in(tmp_path: Path) -> None:
    file = tmp_path / "key"
    found = KeyFiles(file, Clock())
    assert found.keys == ()
    file.write_text("mine")
    assert found.keys == ("mine",)
    file.write_bytes(b"\xff\xfe")
    assert found.keys == ()
    file.write_text("k\n" * key_files.LONGEST_FILE)
    assert found.keys == ()


def test_between_two_reads_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("old")
    found = KeyFiles(tmp_path, lambda: 5.0)
    assert found.keys == ("old",)
    (tmp_path / "key").write_text("new")
    assert found.keys == ("old",)
