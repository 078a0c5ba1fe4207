"""Everybody who takes part."""

from peers.ours import Ours
from peers.peer import Peer
from peers.transformers_library import Transformers
from peers.vllm_cpu import VllmCpu

_ALL: tuple[Peer, ...] = (Ours(), VllmCpu(), Transformers("static"), Transformers("continuous"))
PEERS = {peer.name: peer for peer in _ALL}
OURS = Ours.name
