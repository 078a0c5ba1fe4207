"""A fleet under a new name takes over the served name: it starts beside the old one, and serves from its end on."""

import threading
import time

import pytest

from paternoster_e2e.kubectl import condition, until
from paternoster_e2e.teams import Teams

pytestmark = pytest.mark.timeout(600)


def test_a_renamed_fleet_serves_as_soon_as_the_old_one_is_deleted(teams: Teams) -> None:
    old, new = teams.fleet(teams.a, "old"), teams.fleet(teams.a, "new")
    old.apply(model={"servedName": "chat"})
    old.until_ready()
    new.apply(model={"servedName": "chat"})
    until(lambda: condition(new.get(), "UpToDate").get("status") == "True", "the new one has started", 180)
    assert condition(new.get(), "Ready")["reason"] == "ServedNameTaken"
    assert old.chat(model="chat").status_code == 200
    before = {pod["metadata"]["uid"] for pod in new.pods()}
    answers: list[int] = []
    ended = threading.Event()

    def send_requests() -> None:
        while not ended.is_set():
            answers.append(old.chat(model="chat").status_code)
            time.sleep(0.1)

    asking = threading.Thread(target=send_requests)
    asking.start()
    try:
        old("delete", "llmd", "old")
        new.until_ready()
        until(lambda: not old.pods(), "the old pods are gone", 120)
    finally:
        ended.set()
        asking.join()
    assert {pod["metadata"]["uid"] for pod in new.pods()} == before, "nothing was started for it"
    assert new.chat(model="chat").status_code == 200
    assert set(answers) == {200}
