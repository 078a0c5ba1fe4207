"""All systems that take part.

llama.cpp runs without flash attention, and else as by default: batches of 2,048 tokens computed 512 at a time, a KV
cache to each slot. Tried on 64 requests at once of at most 128 and 32 tokens, in Q4_1 on one thread of a busy machine,
once each, by processor time: 31 s with all defaults, 23 s without flash attention, 24 s without it and 2,048 tokens
computed at a time, 33 s with a sampler that only takes the likeliest token, 51 s with ``--kv-unified``.
"""

from peers.peer import Peer
from peers.systems.llama_cpp import LlamaCpp
from peers.systems.ours import Ours
from peers.systems.transformers_library import Transformers
from peers.systems.vllm_cpu import VllmCpu

_OURS = Ours("bf16")
_ALL: tuple[Peer, ...] = (
    _OURS,
    Ours("q4_1"),
    VllmCpu(),
    LlamaCpp("bf16"),
    LlamaCpp("q4_1"),
    Transformers("static"),
    Transformers("continuous"),
)
PEERS = {peer.name: peer for peer in _ALL}
OURS = _OURS.name
