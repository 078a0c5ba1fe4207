"""What the operator may change while the engine runs."""

from fastapi.responses import PlainTextResponse

from paternoster_contract.admin import (
    LiveConfig,
    LiveConfigPatch,
    LoadLoraAdapter,
    ResetPrefixCacheResult,
    UnloadLoraAdapter,
)
from paternoster_contract.http import paths
from paternoster_contract.stats import EngineState
from paternoster_engine.server.adapters import AdapterStore
from paternoster_engine.server.bodies.body_route import new_router
from paternoster_engine.server.dependencies import State
from paternoster_engine.server.errors import InvalidValue, WrongTask
from paternoster_engine.server.state import ServerState

router = new_router()


@router.get(paths.ADMIN_CONFIG)
async def get_config(state: State) -> LiveConfig:
    return _live_config(state)


@router.patch(paths.ADMIN_CONFIG)
async def patch_config(patch: LiveConfigPatch, state: State) -> LiveConfig:
    """Acts on the next step."""
    served = state.served

    def apply() -> None:
        scheduler, before = served.scheduler, served.scheduler.live_cap
        name = "live_cap"
        try:
            if patch.live_cap is not None:
                scheduler.live_cap = patch.live_cap
            name = "token_budget"
            if patch.token_budget is not None:
                scheduler.token_budget = patch.token_budget
            if patch.max_queue_milliseconds is not None:
                scheduler.queue_wait.max_milliseconds = patch.max_queue_milliseconds
        except ValueError as error:
            # All of it or nothing.
            scheduler.live_cap = before
            raise InvalidValue(name, str(error)) from error

    await served.loop.call_in_loop(apply)
    return _live_config(state)


@router.post(paths.ADMIN_DRAIN)
async def drain_engine(state: State) -> LiveConfig:
    """Admit nothing more; what runs is finished and the process stays up."""
    state.drain()
    return _live_config(state)


@router.delete(paths.ADMIN_DRAIN)
async def resume_admission(state: State) -> LiveConfig:
    """Admit again; 409 once the process is ending."""
    state.admit()
    return _live_config(state)


@router.post(paths.ADMIN_RESET_PREFIX_CACHE)
async def reset_prefix_cache(state: State) -> ResetPrefixCacheResult:
    served = state.served
    return ResetPrefixCacheResult(blocks_freed=await served.loop.call_in_loop(served.scheduler.reset_prefix_cache))


@router.post(paths.LOAD_LORA_ADAPTER)
async def load_lora_adapter(body: LoadLoraAdapter, state: State) -> PlainTextResponse:
    """Answers once the adapter is ready, or at once without ``wait``; requests go on meanwhile."""
    adapters = _adapters(state)
    if not body.wait:
        adapters.background.begin(body.lora_name, body.lora_path, digest=body.lora_digest, version=body.lora_version)
        return PlainTextResponse(f"LoRA adapter '{body.lora_name}' is being loaded: /stats reports what comes of it.")
    await adapters.load(body.lora_name, body.lora_path, digest=body.lora_digest, in_place=body.load_inplace)
    return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' added successfully.")


@router.post(paths.UNLOAD_LORA_ADAPTER)
async def unload_lora_adapter(body: UnloadLoraAdapter, state: State) -> PlainTextResponse:
    """Answers once no new request gets the adapter; its memory is freed when the last that has it ends."""
    _adapters(state).unload(body.lora_name)
    return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")


def _adapters(state: ServerState) -> AdapterStore:
    """Raises :class:`WrongTask` of a model that embeds."""
    adapters = state.served.adapters
    if adapters is None:
        raise WrongTask("This model has no adapters.")
    return adapters


def _live_config(state: ServerState) -> LiveConfig:
    scheduler = state.served.scheduler
    return LiveConfig(
        capacity=scheduler.config.max_num_seqs,
        live_cap=scheduler.live_cap,
        max_batched_tokens=scheduler.config.max_batched_tokens,
        token_budget=scheduler.token_budget,
        max_queue_milliseconds=scheduler.queue_wait.max_milliseconds,
        draining=state.phase is EngineState.DRAINING,
    )
