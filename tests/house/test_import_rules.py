"""Each contract of import-linter fails on an import that it forbids."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = read_configuration(str(ROOT / "pyproject.toml"))
OPTIONS: dict[str, Any] = CONFIGURATION["session_options"]
CONTRACTS: dict[str, dict[str, Any]] = {options["name"]: options for options in CONFIGURATION["contracts_options"]}
FAULTS = {
    "Packages point one way": ("engine.core.batch", "operator.queue"),
    "Layers of the engine": ("engine.model.config", "engine.server.loop"),
    "Layers of the engine's server": ("engine.server.errors", "engine.server.state"),
    "Layers of the kernels": ("kernels.blocks", "kernels.registry"),
    "Layers of the operator": ("operator.cluster.port", "operator.reconcile"),
    "Layers of the gateway": ("gateway.routing.least_loaded", "gateway.proxy.dispatcher"),
    "Layers of the simulator": ("simulator.policies.policy", "simulator.fleet"),
    "No cycles between files or folders": ("engine.core.request", "engine.core.scheduler"),
    "The plugin of vLLM imports no other package": ("vllm.limits", "contract.routing"),
    "Operator, gateway and batch service fetch no models and run no kernels": (
        "gateway.routing.least_loaded",
        "sources.fetch",
    ),
    "The simulator runs the pure cores and no servers, tensors or clusters": (
        "simulator.simulation",
        "engine.model.config",
    ),
    "What translates an API answers no requests and runs no engine": (
        "engine.server.messages.translate",
        "engine.server.state",
    ),
    "Pure code does no I/O and reads no clock": ("operator.autoscaling.autoscaler", "time"),
    "torch only where tensors are": ("engine.core.batch", "torch"),
    "fastapi only in the engine's HTTP server": ("operator.scrape", "fastapi"),
    "HTTP clients and metrics only where they are used": ("contract.routing", "aiohttp"),
    "kopf only in the handlers and the operator command, the Kubernetes client only in its adapter": (
        "operator.reconcile",
        "kopf",
    ),
}
"""Contract -> importer and imported module of a fault, without the prefix ``paternoster_``."""


KINDS = {"layers": LayersContract, "acyclic_siblings": AcyclicSiblingsContract, "forbidden": ForbiddenContract}


ARROW = re.compile(r"^ *(\w+)(?:\[(\w+)\])? --(?:[^>]* --)?> (\w+)(?:\[(\w+)\])?$", re.MULTILINE)
"""An arrow of a Mermaid flowchart, in which a node may get its label."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*OPTIONS["root_packages"], include_external_packages=True, cache_dir=None)


def full_name(module: str) -> str:
    return module if module in ("time", "torch", "fastapi", "aiohttp", "kopf") else f"paternoster_{module}"


def drawn_imports(page: str) -> set[tuple[str, str]]:
    """(importer, imported) of each arrow."""
    arrows = ARROW.findall(page)
    labels = {name: label for arrow in arrows for name, label in (arrow[:2], arrow[2:]) if label}
    return {(labels[importer], labels[imported]) for importer, _, imported, _ in arrows}


def test_the_picture_of_the_packages_has_every_import(graph: grimp.ImportGraph) -> None:
    page = (ROOT / "docs/structure.md").read_text(encoding="utf-8")
    packages = OPTIONS["root_packages"]
    found = {
        (importer, imported)
        for importer in packages
        for imported in packages
        if importer != imported and graph.direct_import_exists(importer=importer, imported=imported, as_packages=True)
    }
    assert drawn_imports(page.partition("## The packages")[2].partition("## ")[0]) == found


def test_every_contract_has_a_fault() -> None:
    assert FAULTS.keys() == CONTRACTS.keys()


@pytest.mark.parametrize("name", FAULTS)
def test_a_forbidden_import_is_reported(name: str, graph: grimp.ImportGraph) -> None:
    importer, imported = map(full_name, FAULTS[name])
    assert {importer, imported} <= graph.modules
    contract = KINDS[CONTRACTS[name]["type"]](name, OPTIONS, CONTRACTS[name])
    assert contract.check(deepcopy(graph), verbose=False).kept
    faulty = deepcopy(graph)
    faulty.add_import(importer=importer, imported=imported)
    assert not contract.check(faulty, verbose=False).kept
