"""The next decode step told to the device: page-locked on the host, copied without waiting.

torch's allocator of page-locked memory keeps a buffer until the copies out of it are made, so that steps in flight
never share one.
"""

from collections.abc import Sequence

import torch

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.runner.cuda.decode_step import DecodeStep
from paternoster_engine.runner.cuda.row_fields import RowFields
from paternoster_engine.runner.cuda.row_table import Placed
from paternoster_engine.sampling.device_sampler import signed64
from paternoster_kernels.upload import upload


def decodes_alone(item: ScheduledRequest) -> bool:
    """Whether a :class:`DecodeStep` does all that ``item`` needs.

    It does not tell log probabilities, and knows neither penalties nor ``min_tokens`` nor beams.
    """
    request, params = item.request, item.request.params
    single = item.samples and item.num_tokens == 1 and item.start >= request.num_prompt - 1
    return (
        single
        and params.logprobs is None
        and params.beam is None
        and not params.has_penalties
        and item.stop - request.num_prompt >= params.min_tokens
    )


def stage(step: DecodeStep, placed: Sequence[Placed]) -> None:
    """Tell ``step`` all about its rows; those not ``placed`` are padding."""
    fields = RowFields(len(step.tokens), torch.device("cpu"), pinned=step.tokens.is_cuda)
    fields["slots"].fill_(-1)
    fields["seq_lens"].fill_(1)
    # What divides logits and takes a logarithm must be harmless in padding too.
    fields["top_p"].fill_(1.0)
    order = [place.row for place in placed]
    requests = [place.item.request for place in placed]
    params = [request.params for request in requests]
    columns: dict[str, list[int] | list[float]] = {
        "token_ids": [place.token for place in placed],
        "positions": [place.item.start - 1 for place in placed],
        # Any slot says that the row lives; the step works out the real one.
        "slots": [0] * len(placed),
        "sources": [place.source for place in placed],
        "columns": [place.column for place in placed],
        "blocks": [place.block for place in placed],
        "seeds": [signed64(request.seed) for request in requests],
        "top_k": [p.top_k for p in params],
        "top_p": [p.top_p for p in params],
        "min_p": [p.min_p for p in params],
        "temperature": [p.temperature for p in params],
    }
    for name, values in columns.items():
        fields[name].numpy()[order] = values
    step.fields.memory.copy_(fields.memory, non_blocking=True)
    _tell_tables(step.block_tables, [place for place in placed if place.new_table])


def _tell_tables(tables: torch.Tensor, placed: Sequence[Placed]) -> None:
    if not placed:
        return
    width = max(len(place.item.request.block_ids) for place in placed)
    told = torch.zeros(len(placed), width, dtype=torch.int32)
    for row, place in zip(told.numpy(), placed, strict=True):
        row[: len(place.item.request.block_ids)] = place.item.request.block_ids
    rows = torch.tensor([place.row for place in placed])
    tables[:, :width].index_copy_(0, upload(rows, tables.device), upload(told, tables.device))
