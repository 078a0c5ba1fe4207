"""Each type of engine starts on this machine on bound ports, in place of those of its container."""

import pytest

from paternoster_operator.engines.adapter import BoundPort, Launch, RuntimeType
from paternoster_operator.engines.kinds import KINDS

PORT, ADMIN = BoundPort(40_000, 7), BoundPort(40_001, 8)
ENV = {"PATERNOSTER_HOST": "0.0.0.0", "PATERNOSTER_PORT": "8000", "A": "$(PATERNOSTER_PORT)"}


@pytest.mark.parametrize(
    ("type_", "args", "started"),
    [
        (
            RuntimeType.PATERNOSTER,
            ["--model", "m", "--host", "", "--admin-port", "9000", "--dtype", "float32", "--port", "8000"],
            [
                "--model", "m", "--dtype", "float32", "--port", "40000", "--fd", "7", "--admin-port", "40001",
                "--admin-fd", "8", "--host", "127.0.0.1",
            ],
        ),
        (
            RuntimeType.VLLM,
            ["/m", "--served-model-name", "a", "b", "--host", "::", "--port", "8000", "--enforce-eager"],
            ["/m", "--served-model-name", "a", "b", "--enforce-eager", "--port", "40000", "--host", "127.0.0.1"],
        ),
        (
            RuntimeType.SGLANG,
            ["--host", "0.0.0.0", "--port", "8000", "--enable-metrics"],
            ["--enable-metrics", "--port", "40000", "--host", "127.0.0.1"],
        ),
        (RuntimeType.OPENAI, ["--host", "$(PATERNOSTER_HOST)"], ["--host", "$(PATERNOSTER_HOST)"]),
    ],
)  # fmt: skip
def test_host_and_ports_are_those_of_this_machine(type_: RuntimeType, args: list[str], started: list[str]) -> None:
    kind = KINDS[type_]
    admin = ADMIN if type_ is RuntimeType.PATERNOSTER else None
    launch = kind.start_locally(Launch(["program"], args, ENV), "127.0.0.1", PORT, admin)
    assert (launch.command, launch.args) == (["program"], started)
    ports = {"PATERNOSTER_HOST": "127.0.0.1", "PATERNOSTER_PORT": "40000"}
    assert launch.env == (ENV | ports if type_ is RuntimeType.OPENAI else ENV)
    assert kind.inherits_sockets is (str(PORT.socket) in started)
