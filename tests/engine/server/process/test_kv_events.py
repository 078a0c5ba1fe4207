"""A subscriber of a served engine has the blocks that the engine finds in its cache."""

from pathlib import Path
from typing import Any

import httpx
import zmq

from paternoster_contract.http import paths
from paternoster_contract.settings.kv_events import KVEventsConfig
from paternoster_engine.core.kv.block_keys import chain_key
from paternoster_engine.kv_events.messages import AllBlocksCleared, BlockRemoved, BlockStored, decode_batch
from paternoster_engine.kv_events.publisher import END_OF_REPLAY

WAIT_MS = 20_000
TEXT = "The paternoster lift has no doors and never stops. " * 20


def read_events(endpoint: str) -> set[bytes]:
    """Hashes of the blocks that are stored after every batch since the engine began."""
    stored: set[bytes] = set()
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.RCVTIMEO, WAIT_MS)
        dealer.connect(endpoint)
        dealer.send_multipart((b"", bytes(8)))
        while (frames := dealer.recv_multipart())[2] != END_OF_REPLAY:
            for event in decode_batch(frames[3]).events:
                match event:
                    case BlockStored():
                        stored.update(event.block_hashes)
                    case BlockRemoved():
                        stored.difference_update(event.block_hashes)
                    case AllBlocksCleared():
                        stored.clear()
    return stored


async def test_subscriber_has_the_blocks_of_a_cached_prompt(run_engine: Any, tmp_path: Path) -> None:
    replay = f"ipc://{tmp_path}/replay"
    config = KVEventsConfig(enable_kv_cache_events=True, endpoint=f"ipc://{tmp_path}/events", replay_endpoint=replay)
    with run_engine("--block-size", "16", "--kv-events-config", str(config)) as engine:
        async with httpx.AsyncClient(base_url=engine.url, timeout=60) as http:
            tokens = (await http.post("/tokenize", json={"prompt": TEXT})).json()["tokens"]
            body = {"prompt": tokens, "max_tokens": 2, "temperature": 0}
            assert (await http.post("/v1/completions", json=body)).status_code == 200
            again = (await http.post("/v1/completions", json=body)).json()["usage"]["prompt_tokens_details"]
            chain, key = [], b""
            for start in range(0, len(tokens) - 15, 16):
                key = chain_key(key, tokens[start : start + 16])
                chain.append(key)
            assert again["cached_tokens"] == 16 * len(chain)
            assert set(chain) <= read_events(replay)
            reset = await http.post(f"{engine.admin_url}{paths.ADMIN_RESET_PREFIX_CACHE}")
            assert reset.json()["blocks_freed"] >= len(chain)
        assert read_events(replay) == set()
