"""``paternoster load``: the short name of ``paternoster bench serve``."""

from paternoster_engine.commands.bench.serve import HELP, add_arguments, run

__all__ = ["HELP", "add_arguments", "run"]
