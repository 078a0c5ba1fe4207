"""All peers that a comparison runs."""

from typing import Any, Final

from peer_policies.aibrix_apa import AIBRIX_APA
from peer_policies.aibrix_kpa import AIBRIX_KPA
from peer_policies.dynamo import DYNAMO
from peer_policies.kubeai import KUBEAI
from peer_policies.peer import Peer
from peer_policies.production_stack import PRODUCTION_STACK
from peer_policies.ray_serve import RAY_SERVE
from peer_policies.wva import WVA

PEERS: Final[tuple[Peer[Any], ...]] = (AIBRIX_APA, AIBRIX_KPA, DYNAMO, KUBEAI, PRODUCTION_STACK, RAY_SERVE, WVA)
