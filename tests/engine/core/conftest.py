"""A model without tensors, for stepping the scheduler by hand or at random."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
