"""Messages of rank 0 to the other ranks, in plain data; a step is a :class:`HostStep`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.core.batch import BlockCopy
from paternoster_engine.runner.step_input import HostStep


@dataclass(frozen=True, slots=True)
class Start:
    """The first message: which part of which model."""

    args: EngineArgs
    rank: int
    rendezvous: Path
    """File through which the ranks find each other."""


@dataclass(frozen=True, slots=True)
class CopyBlocks:
    """Copy blocks within the KV pool."""

    copies: Sequence[BlockCopy]


@dataclass(frozen=True, slots=True)
class SaveBlocks:
    """Copy blocks of the KV pool to host memory."""

    copies: Sequence[BlockCopy]


@dataclass(frozen=True, slots=True)
class LoadBlocks:
    """Copy blocks of host memory to the KV pool."""

    copies: Sequence[BlockCopy]


Message = Start | HostStep | CopyBlocks | SaveBlocks | LoadBlocks
