"""A command whose standard output is closed by its reader, as `| head` does, ends as a shell's own commands do."""

import signal
import subprocess
import sys


def test_a_reader_that_closes_its_end_is_no_fault() -> None:
    program = "from paternoster_contract.cli.terminal import print_text; print_text('x\\n' * 2_000_000)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read()
    assert errors == b""
    assert process.returncode == 128 + signal.SIGPIPE
