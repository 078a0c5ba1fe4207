"""Envoy as ``examples/envoy/picker.yaml`` configures it, and ``paternoster picker``, on ports of this machine."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from harness.servers import PATERNOSTER, Server, free_port
from paternoster_contract.routing import ModelRoute, RoutingTable
from peers.systems.environment import Environment

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/envoy/picker.yaml"


def make_servers(
    folder: Path,
    models: Mapping[str, ModelRoute],
    engines: Sequence[str],
    *flags: str,
    failure_mode_allow: bool = False,
    **modes: str,
) -> tuple[Server, Server]:
    """Envoy before ``engines``, URLs of this machine, and its picker with ``flags``, for ``models``.

    ``failure_mode_allow`` and ``modes``, of the processing, differ from the example's. The table is ``routes.json`` in
    ``folder``. Raises :class:`SetUpError` where there is no Envoy.
    """
    environment, port, picks, stats = Environment("envoy"), free_port(), free_port(), free_port()
    environment.set_up()
    table, file = folder / "routes.json", folder / "envoy.yaml"
    table.write_text(RoutingTable(models=dict(models)).model_dump_json())
    config: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    listener = config["static_resources"]["listeners"][0]
    listener["address"] = _address_of(port)
    processor = listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"][0]["typed_config"]
    processor["failure_mode_allow"] = failure_mode_allow
    processor["processing_mode"].update(modes)
    ports = [int(url.rpartition(":")[2]) for url in engines]
    for cluster, own in zip(config["static_resources"]["clusters"], ([picks], ports), strict=True):
        cluster["type"] = "STATIC"
        endpoints = [{"endpoint": {"address": _address_of(each)}} for each in own]
        cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": endpoints}]
    file.write_text(yaml.safe_dump(config))
    command = [PATERNOSTER, "picker", "--routes", str(table), "--port", str(picks), "--health-port", "0"]
    picker = Server("picker", [*command, "--stats-port", str(stats), *flags], stats, folder / "picker.log")
    command = [str(environment.folder / "bin/envoy"), "-c", str(file), "--concurrency", "1", "-l", "warning"]
    envoy = Server(
        "picked envoy", [*command, "--disable-hot-restart"], port, folder / "picked-envoy.log", ready="/v1/models"
    )
    return envoy, picker


def _address_of(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
