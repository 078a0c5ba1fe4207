"""Bounds that more than one part of the system checks."""

MIN_PRIORITY = -1000
MAX_PRIORITY = 1000
"""Classes of requests; lower is served first."""

LONGEST_NAME = 512
"""Characters of a model's name."""
MAX_ALIASES = 16
"""Names of a model beside its first."""
MAX_SERVED_NAMES = 1 + MAX_ALIASES
MAX_ADAPTERS = 64
"""Adapters (LoRA) of a fleet, each of which is a model's name, too."""
LONGEST_FAULT = 300
"""Characters of why an adapter cannot be loaded."""
