"""Subcommands of ``paternoster`` that the operator's package brings."""
