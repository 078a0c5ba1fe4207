"""What the operator may change while the engine runs."""

from fastapi import APIRouter

from paternoster_contract import paths
from paternoster_contract.admin import LiveConfig, LiveConfigPatch, ResetPrefixCacheResult
from paternoster_contract.stats import EngineState
from paternoster_engine.server.dependencies import State
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.state import ServerState

router = APIRouter()


@router.get(paths.ADMIN_CONFIG)
async def get_config(state: State) -> LiveConfig:
    return _config(state)


@router.patch(paths.ADMIN_CONFIG)
async def patch_config(patch: LiveConfigPatch, state: State) -> LiveConfig:
    """Acts on the next step."""
    served = state.served

    def set_live_cap() -> None:
        served.scheduler.live_cap = patch.live_cap

    try:
        await served.loop.call(set_live_cap)
    except ValueError as error:
        raise InvalidValue("live_cap", str(error)) from error
    return _config(state)


@router.post(paths.ADMIN_DRAIN)
async def drain(state: State) -> LiveConfig:
    """Admit nothing more; what runs is finished and the process stays up."""
    state.drain()
    return _config(state)


@router.delete(paths.ADMIN_DRAIN)
async def admit(state: State) -> LiveConfig:
    """Admit again; 409 once the process was told to end."""
    state.admit()
    return _config(state)


@router.post(paths.ADMIN_RESET_PREFIX_CACHE)
async def reset_prefix_cache(state: State) -> ResetPrefixCacheResult:
    served = state.served
    return ResetPrefixCacheResult(blocks_freed=await served.loop.call(served.scheduler.reset_prefix_cache))


def _config(state: ServerState) -> LiveConfig:
    scheduler = state.served.scheduler
    return LiveConfig(
        capacity=scheduler.config.max_num_seqs,
        live_cap=scheduler.live_cap,
        draining=state.phase is EngineState.DRAINING,
    )
