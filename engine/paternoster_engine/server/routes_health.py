"""Probes and numbers, open to everyone."""

import time

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client.exposition import choose_encoder

from paternoster_contract import __version__
from paternoster_contract.default_parameters import DefaultParameters
from paternoster_contract.http import paths
from paternoster_contract.stats import EngineState, EngineStats
from paternoster_contract.stream_journal import JOURNAL
from paternoster_engine.server.dependencies import State
from paternoster_engine.server.metrics.process_metrics import process_registry
from paternoster_engine.server.state import ServerState

router = APIRouter()


@router.get(paths.HEALTH, responses={503: {"description": "the engine hangs or is gone"}})
async def check_health(state: State) -> JSONResponse:
    """Liveness: 503 once the engine loop has not come round for too long."""
    if state.healthy:
        headers = None if state.loading else {JOURNAL: state.served.fingerprint}
        return JSONResponse({"status": "ok"}, headers=headers)
    age = state.served.loop.last_tick_age
    return JSONResponse({"status": "stalled", "last_tick_age_seconds": round(age, 3)}, 503)


@router.get(paths.READY, responses={503: {"description": "the engine loads or drains"}})
async def check_readiness(state: State) -> JSONResponse:
    """Readiness: 200 while new requests are admitted."""
    return JSONResponse({"status": state.phase}, 200 if state.phase is EngineState.READY else 503)


@router.get(paths.STATS)
async def get_stats(state: State) -> EngineStats:
    return build_stats(state)


@router.get(paths.METRICS, response_class=PlainTextResponse)
async def get_metrics(request: Request, state: State) -> Response:
    """Prometheus text; of the process alone while the model loads."""
    registry = process_registry() if state.loading else state.served.registry
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), headers={"Content-Type": content_type})


@router.get(paths.VERSION)
async def get_version() -> dict[str, str]:
    return {"version": __version__}


def build_stats(state: ServerState) -> EngineStats:
    """The engine's numbers as the operator reads them, without a stop of the engine."""
    served = state.served
    # Where there may be some: the operator loads none elsewhere.
    adapters = served.adapters if served.adapters is not None and served.adapters.max_bytes else None
    first, between = served.histograms.first_tokens, served.histograms.inter_tokens
    return EngineStats(
        instance=state.instance,
        model=served.name,
        state=state.phase,
        started_at=state.started_at,
        start_seconds=dict(served.start_seconds),
        time=time.time(),
        last_tick_age_seconds=served.loop.last_tick_age,
        idle_seconds=served.loop.idle_seconds,
        first_token_seconds_total=first.seconds,
        first_token_count_total=first.count,
        inter_token_seconds_total=between.seconds,
        inter_token_count_total=between.count,
        adapters=None if adapters is None else adapters.background.list_reports(),
        default_parameters=DefaultParameters.model_validate(served.sampling_defaults.list_set_values()),
        **served.scheduler.build_stats(),
    )
