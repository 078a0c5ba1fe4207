"""Steps of models whose hidden states are wanted: vectors in place of tokens."""

from array import array
from collections.abc import Sequence

import torch
from torch.nn import functional

from paternoster_engine.core.batch import Batch, ScheduledRequest, StepResult
from paternoster_engine.core.request import Request
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.encoders.encoder import Encoder, TextBatch
from paternoster_engine.model.encoders.text_decoder import TextDecoder
from paternoster_engine.runner.find_corrupted import with_infinite_vector
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.runner.protocol import SynchronousRunner
from paternoster_engine.sampling.sampler import Sampler
from paternoster_kernels.upload import upload_tensor


class PoolingRunner(ModelRunner):
    """A decoder's: the vector is the hidden state of the last token, which has seen all others."""

    def __init__(self, model: Decoder, kv_cache: Sequence[torch.Tensor]) -> None:
        """``kv_cache``: from :func:`allocate_kv_cache`."""
        super().__init__(model, kv_cache, Sampler(model.config.vocab_size, kv_cache[0].device))
        self._pooling = model.config.pooling

    def _build_result(self, batch: Batch, order: Sequence[ScheduledRequest], logits: torch.Tensor) -> StepResult:
        assert self._pooling is not None
        vectors = logits.float()
        if self._pooling.normalized:
            vectors = functional.normalize(vectors)
        return _vector_result(batch, [item.request for item in order if item.samples], vectors)


class EncoderRunner(SynchronousRunner):
    """An encoder's, or a bidirectional decoder's: every text of a batch is there as a whole."""

    def __init__(self, model: Encoder | TextDecoder) -> None:
        self._model = model

    @torch.inference_mode()
    def execute(self, batch: Batch) -> StepResult:
        # Texts of one length become neighbours: attention takes them together.
        requests = sorted((item.request for item in batch.scheduled), key=lambda request: request.num_prompt)
        return _vector_result(batch, requests, self._model.compute_vectors(self._build_texts(requests)))

    def _build_texts(self, requests: Sequence[Request]) -> TextBatch:
        token_ids: list[int] = []
        positions: list[int] = []
        token_types: list[int] = []
        for request in requests:
            length = request.num_prompt
            token_ids += request.prompt
            positions += range(length)
            first = length if request.spec.second_text is None else request.spec.second_text
            token_types += [0] * first + [1] * (length - first)
        device = self._model.device
        return TextBatch(
            token_ids=upload_tensor(torch.tensor(token_ids), device),
            positions=upload_tensor(torch.tensor(positions), device),
            token_types=upload_tensor(torch.tensor(token_types), device),
            lengths=[request.num_prompt for request in requests],
        )


def _vector_result(batch: Batch, requests: Sequence[Request], vectors: torch.Tensor) -> StepResult:
    """``vectors``: ``[len(requests), size]`` float32."""
    size = vectors.shape[1]
    corrupted = with_infinite_vector(requests, vectors)
    numbers = array("f", vectors.cpu().contiguous().numpy().tobytes())
    return StepResult(
        [None] * len(batch.scheduled),
        vectors={request: numbers[i * size : (i + 1) * size] for i, request in enumerate(requests)},
        corrupted=corrupted,
    )
