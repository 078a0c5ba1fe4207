"""``system_fingerprint``: another one means that a seed may give other tokens than before."""

import hashlib

from paternoster_contract import __version__
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.model.config import Described

DIGITS = 12


def compute_fingerprint(args: EngineArgs, model: Described) -> str:
    """``fp_`` and a digest of what decides which numbers are computed: programs, model, formats, devices."""
    import torch  # which is there once a model is; a server says before that it loads

    cuda = torch.cuda.is_available() and args.device != "cpu"
    device = torch.cuda.get_device_name() if cuda else torch.backends.cpu.get_cpu_capability()
    parts = (
        __version__, torch.__version__, args.model, repr(model), device,
        args.dtype, args.quantization, args.kv_cache_dtype, args.tensor_parallel_size, args.batch_invariant,
    )  # fmt: skip
    return "fp_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:DIGITS]
