"""Keys of clients change without a restart, and without a moment in which neither is valid."""

import time

import pytest

from paternoster_e2e.kubectl import until
from paternoster_e2e.teams import Teams

pytestmark = pytest.mark.timeout(600)


def test_two_keys_are_valid_while_one_takes_the_others_place(teams: Teams) -> None:
    fleet = teams.fleet(teams.a)

    def write(*keys: str) -> None:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "clients", "namespace": teams.a}}
        teams.kubectl.apply({**secret, "stringData": {"key": "\n".join(keys)}})

    write("old")
    fleet.apply(security={"apiKeySecretRef": {"name": "clients"}})
    fleet.until_ready()
    before = [pod["metadata"]["uid"] for pod in fleet.pods()]
    assert [fleet.chat(key).status_code for key in ("old", "new", "")] == [200, 401, 401]

    write("old", "new")
    deadline = time.monotonic() + 120
    while fleet.chat("new").status_code != 200:
        assert fleet.chat("old").status_code == 200, "the old key stays valid meanwhile"
        assert time.monotonic() < deadline
        time.sleep(1)
    write("new")
    until(lambda: fleet.chat("old").status_code == 401, "the old key is refused", 120)
    assert fleet.chat("new").status_code == 200
    assert [pod["metadata"]["uid"] for pod in fleet.pods()] == before, "no engine was restarted"
    assert all(status["restartCount"] == 0 for pod in fleet.pods() for status in pod["status"]["containerStatuses"])
