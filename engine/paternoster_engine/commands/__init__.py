"""Subcommands the engine package brings."""
