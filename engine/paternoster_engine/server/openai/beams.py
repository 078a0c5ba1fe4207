"""What a request for beam search may say besides."""

import json
from collections.abc import Mapping
from typing import Any

from paternoster_engine.sampling.beam_search import BeamParams
from paternoster_engine.server.bodies.invalid_fields import shown
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai.requests import GenerationRequest

WITH_BEAMS: Mapping[str, tuple[Any, ...]] = {
    # No token is certain before the search has ended.
    "stream": (False,),
    # Nothing is sampled, ...
    "temperature": (0.0, 1.0),
    "top_p": (1.0,),
    "top_k": (0, -1),
    "min_p": (0.0,),
    "seed": (None, -1),
    # ... beams are ranked by what the model itself says, ...
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
    "repetition_penalty": (1.0,),
    "logit_bias": ({},),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    # ... and end with a token: stop_token_ids are fine.
    "stop": ([],),
}
"""Fields that cannot be had together with beams, and the values that do not ask for anything."""
WITHOUT_BEAMS: Mapping[str, tuple[Any, ...]] = {"length_penalty": (1.0,), "early_stopping": (False,)}


def beam_params(body: GenerationRequest) -> BeamParams | None:
    """The search that ``body`` asks for; raises :class:`InvalidValue` for what does not go together."""
    for field, allowed in (WITH_BEAMS if body.use_beam_search else WITHOUT_BEAMS).items():
        value = getattr(body, field)
        if value not in allowed:
            state, fine = json.dumps(body.use_beam_search), " or ".join(json.dumps(other) for other in allowed)
            raise InvalidValue(
                field,
                f"{field}: not allowed with use_beam_search={state}: leave it out or send {fine} (got {shown(value)})",
            )
    if not body.use_beam_search:
        return None
    if body.sequences < 2:
        raise InvalidValue("n", "n: with use_beam_search=true n or best_of is the number of beams, at least 2 (got 1)")
    return BeamParams(body.sequences, body.length_penalty, body.early_stopping)
