"""Subcommands of this package."""
