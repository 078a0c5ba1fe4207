"""Subcommands of the load generator."""
