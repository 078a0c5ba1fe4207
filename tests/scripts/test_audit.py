"""``scripts/audit``: its exit status says whether packages were checked, and what was found."""

import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("curl", "pip_audit", "status", "message"),
    [(6, 0, 3, "not audited: no answer from https://"), (0, 0, 0, ""), (0, 1, 1, "")],
    ids=["no advisories", "no vulnerability", "a vulnerability"],
)
def test_packages_that_were_not_checked_are_no_success(
    tmp_path: Path, curl: int, pip_audit: int, status: int, message: str
) -> None:
    checkout, cache, programs = tmp_path / "checkout", tmp_path / "cache", tmp_path / "bin"
    for name in ("scripts/audit", "scripts/audit-accepted.txt", "requirements/audit.txt"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    tools = cache / f"audit-{sha256((checkout / 'requirements/audit.txt').read_bytes()).hexdigest()[:12]}" / "bin"
    write_program(cache / "uv-1/bin/uv", "exit 1")
    write_program(tools / "pip-audit", f"exit {pip_audit}")
    write_program(tools / "cyclonedx-py", 'for last; do :; done; echo \'"purl"\' > "$last"')
    write_program(programs / "curl", f"exit {curl}")
    env = {"PATH": f"{programs}:/usr/bin:/bin", "PATERNOSTER_CACHE": str(cache), "HOME": str(tmp_path)}
    done = subprocess.run([str(checkout / "scripts/audit")], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith(message)
