"""Which bodies a gateway refuses, and for how long."""

from paternoster_gateway.admission.quarantine import MAX_BODIES, QUARANTINE_SECONDS, Quarantine, digest_of


def test_quarantined_bodies_are_removed_after_their_time_and_above_the_limit() -> None:
    refused, later = Quarantine(), QUARANTINE_SECONDS - 1
    refused.add(b"first", 0.0)
    assert refused.contains(b"first", later)
    for number in range(MAX_BODIES):
        refused.add(b"%d" % number, later)
    assert not refused.contains(b"first", later)
    assert refused.count(later) == MAX_BODIES
    assert not refused.contains(b"0", later + QUARANTINE_SECONDS)
    assert refused.count(later + QUARANTINE_SECONDS) == 0


def test_bodies_of_clients_that_left_are_quarantined_unless_the_replica_answered_after_them() -> None:
    refused = Quarantine()
    for read_by in (2.0, 12.0):
        refused.add_left("a", b"%d" % read_by, read_by)
    refused.add_left("b", b"other", 12.0)
    refused.on_replica_hung("a", last_byte=3.0, now=20.0)
    refused.forget_left("b")
    refused.on_replica_hung("b", last_byte=0.0, now=20.0)
    assert [refused.contains(digest, 20.0) for digest in (b"2", b"12", b"other")] == [False, True, False]


def test_a_body_has_a_digest_of_its_own_for_each_fleet_tenant_and_path() -> None:
    places = [("f", "t", "/a"), ("g", "t", "/a"), ("f", "u", "/a"), ("f", "t", "/b")]
    assert len({digest_of(*place, b"{}") for place in places}) == len(places)
