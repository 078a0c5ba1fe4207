"""When a sequence ends."""

from paternoster_engine.core.request import FinishReason, Request


def finish_reason(request: Request, token: int, max_model_len: int) -> FinishReason | None:
    """Why ``token``, the newest of the output, is the last one; None if it is not."""
    params = request.params
    if len(request.output) >= params.min_tokens:
        if token in params.stop_token_ids:
            return FinishReason.STOP
        if token in request.eos_token_ids and not params.ignore_eos:
            return FinishReason.STOP
    if len(request.output) >= params.max_tokens or request.num_tokens >= max_model_len:
        return FinishReason.LENGTH
    return None


def pending_token_is_last(request: Request, max_model_len: int) -> bool:
    """Whether the token that a step under way samples ends the request by its length, whatever it is."""
    num_output = len(request.output) + request.num_pending
    return num_output >= request.params.max_tokens or request.num_expected >= max_model_len
