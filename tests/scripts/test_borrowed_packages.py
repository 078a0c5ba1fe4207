"""A cluster of e2e refuses a checkout that its pods cannot see."""

from pathlib import Path

import pytest

from paternoster_e2e.cluster import cluster


def test_a_checkout_below_tmp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ROOT", Path("/tmp/checkout"))
    with pytest.raises(RuntimeError, match=r"^/tmp/checkout is below /tmp, where pods have a volume of their own"):
        cluster.borrowed_packages()
