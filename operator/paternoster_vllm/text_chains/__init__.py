"""Texts in vLLM's prefix cache: pieces of prompts tied to cached blocks, and the stream of them for gateways."""

import logging
import sys
from pathlib import Path

from paternoster_vllm.asgi import App

log = logging.getLogger(__name__)

UTILITY = "paternoster_text_chains"
"""Name of the method by which the API server reaches the engine core."""
PIECES = "paternoster_pieces"
"""Key of ``SamplingParams.extra_args`` with the pieces of a prompt, as :mod:`.block_watch` reads them."""

COPIES = str(Path(__file__).parent.parent / "copies")
"""Has ``paternoster_contract.text_chains`` where the plugin is alone; last on the path, behind a whole package."""
if COPIES not in sys.path:
    sys.path.append(COPIES)


def follow_texts(app: App) -> App:
    """``app`` behind a layer that publishes text chains; ``app`` itself where a package is missing that this needs."""
    try:
        from paternoster_vllm.text_chains.layer import TextChains
    except ImportError as error:
        log.warning("paternoster_vllm: text chains are not published: %s", error)
        return app
    return TextChains(app)
