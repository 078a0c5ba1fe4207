"""What engine, operator and gateway agree on: names and small documents, and nothing that acts on them.

A leaf package: pydantic and the standard library only, so that any side can import it without
the other side's dependencies.
"""

__version__ = "0.2.0"
