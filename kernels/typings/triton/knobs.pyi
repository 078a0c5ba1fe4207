from typing import Any

runtime: Any
