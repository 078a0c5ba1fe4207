"""A decode step of the model on buffers that stay where they are: what a CUDA graph captures.

Token -> next input, position and slot are made on the device; so is the choice of the next token.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.step import StepInput
from paternoster_engine.runner.cuda.row_fields import RowFields
from paternoster_kernels import DeviceBatch, pick_kernel


class DecodeStep:
    """One new token for each of up to ``rows`` sequences; rows without a sequence store nothing.

    Such a row has slot -1, a sequence of one token, and the null block in front of its table: it reads zeros.
    """

    def __init__(self, model: Decoder, kv_cache: Sequence[torch.Tensor], rows: int, max_model_len: int) -> None:
        """Prepare steps over ``kv_cache``, which :func:`allocate_kv_cache` made.

        ``max_model_len``: tokens of the longest sequence, which bounds the launches.
        """
        device = kv_cache[0].device
        self._model = model
        self._kv_cache = kv_cache
        self._block_size = kv_cache[0].shape[2]
        self._max_model_len = max_model_len
        self._advance = pick_kernel("advance_decode", device)
        self._sample = pick_kernel("sample", device)
        self.num_groups = len(model.config.layer_groups)
        self.fields = RowFields(rows, device, num_groups=self.num_groups)
        self.fields["slots"].fill_(-1)
        self.fields["seq_lens"].fill_(1)
        width = -(-max_model_len // self._block_size)
        self.block_tables = torch.zeros(self.num_groups, rows, width, dtype=torch.int32, device=device)
        """One of each group of layers."""
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        """``[rows]`` int64: what the last step sampled."""
        self._query_starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
        self._row_indices = torch.arange(rows, dtype=torch.int64, device=device)

    @torch.inference_mode()
    def run(self, size: int) -> None:
        """Run the first ``size`` rows; their tokens are then in :attr:`tokens`."""
        positions, slots, sources = (self.fields[name][:size] for name in ("positions", "slots", "sources"))
        token_ids, seq_lens = self.fields["token_ids"][:size], self.fields["seq_lens"][:size]
        tables = self.block_tables[:, :size]
        columns = self.fields["columns"][None, :size, None].expand(self.num_groups, -1, -1)
        tables.scatter_(2, columns, self.fields["blocks"][:, :size, None])
        # A request without a chosen token (NO_TOKEN) ends, so what this step computes for it is not used.
        last = torch.where(sources < 0, token_ids, self.tokens[sources.clamp(min=0)].clamp(min=0))
        batch = DeviceBatch(self._query_starts[: size + 1], seq_lens, tables[0], slots, 1, self._max_model_len)
        self._advance(last, token_ids, positions, batch, self._block_size)
        batches = [batch, *(self._in_group(batch, positions, table) for table in tables[1:])]
        step = StepInput(token_ids, positions, self._row_indices[:size], batches)
        logits = self._model.forward(step, self._kv_cache)
        chosen = (self.fields[name][:size] for name in ("temperature", "top_k", "top_p", "min_p", "seeds"))
        # A token is drawn under the position that it will have.
        self.tokens[:size].copy_(self._sample(logits, *chosen, positions + 1))

    def _in_group(self, batch: DeviceBatch, positions: torch.Tensor, table: torch.Tensor) -> DeviceBatch:
        """``batch``, advanced, in the blocks of another group."""
        block = table.gather(1, positions[:, None] // self._block_size).squeeze(1).long()
        slots = torch.where(batch.slots < 0, batch.slots, block * self._block_size + positions % self._block_size)
        return replace(batch, block_tables=table, slots=slots)
