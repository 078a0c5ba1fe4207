"""The next decode step host to the device: page-locked on the host, copied without waiting.

torch's allocator of page-locked memory keeps a buffer until the copies out of it are made, so that steps in flight
never share one.
"""

from collections.abc import Sequence

import numpy as np
import torch

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.runner.cuda.decode_slots import DecodeSlot
from paternoster_engine.runner.cuda.decode_step import DecodeStep
from paternoster_engine.runner.cuda.row_fields import RowFields
from paternoster_engine.sampling.columns import to_signed64
from paternoster_kernels.upload import upload_tensor


def decodes_alone(item: ScheduledRequest) -> bool:
    """Whether a :class:`DecodeStep` does all that ``item`` needs.

    It gives no log probabilities, and has neither biases nor penalties, grammars that hold, ``min_tokens`` or beams.
    """
    request, params = item.request, item.request.params
    single = item.samples and item.num_tokens == 1 and item.start >= request.num_prompt - 1
    return (
        single
        and params.logprobs is None
        and request.branch_selector is None
        and (request.matcher is None or (item.start < request.num_tokens and request.matcher.is_unconstrained(request)))
        and not params.changes_logits
        and not params.allowed_tokens
        and item.stop - request.num_prompt >= params.min_tokens
    )


def stage_step(step: DecodeStep, slots: Sequence[DecodeSlot]) -> None:
    """Upload all that ``step`` reads of its rows; those without a slot are padding."""
    fields = RowFields(len(step.tokens), torch.device("cpu"), num_groups=step.num_groups, pinned=step.tokens.is_cuda)
    fields["slots"].fill_(-1)
    fields["seq_lens"].fill_(1)
    # What divides logits and takes a logarithm must be harmless in padding too.
    fields["top_p"].fill_(1.0)
    order = [slot.row for slot in slots]
    requests = [slot.item.request for slot in slots]
    params = [request.params for request in requests]
    columns: dict[str, list[int] | list[float]] = {
        "token_ids": [slot.token for slot in slots],
        "positions": [slot.item.start - 1 for slot in slots],
        # Any slot says that the row lives; the step works out the real one.
        "slots": [0] * len(slots),
        "sources": [slot.source for slot in slots],
        "columns": [slot.column for slot in slots],
        "seeds": [to_signed64(request.seed) for request in requests],
        "top_k": [p.top_k for p in params],
        "top_p": [p.top_p for p in params],
        "min_p": [p.min_p for p in params],
        "temperature": [p.temperature for p in params],
    }
    for name, values in columns.items():
        fields[name].numpy()[order] = values
    fields["blocks"].numpy()[:, order] = np.array([slot.blocks for slot in slots]).T
    step.fields.memory.copy_(fields.memory, non_blocking=True)
    _upload_tables(step.block_tables, [slot for slot in slots if slot.new_table])


def _upload_tables(tables: torch.Tensor, slots: Sequence[DecodeSlot]) -> None:
    if not slots:
        return
    groups = len(tables)
    width = max(len(slot.item.request.block_table.block_ids) for slot in slots) // groups
    host = torch.zeros(groups, len(slots), width, dtype=torch.int32)
    for number, slot in enumerate(slots):
        table = np.array(slot.item.request.block_table.block_ids, dtype=np.int32).reshape(-1, groups)
        host.numpy()[:, number, : len(table)] = table.T
    rows = torch.tensor([slot.row for slot in slots])
    tables[:, :, :width].index_copy_(1, upload_tensor(rows, tables.device), upload_tensor(host, tables.device))
