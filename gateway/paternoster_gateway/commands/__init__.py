"""Subcommands of ``paternoster`` that the gateway's package brings."""
