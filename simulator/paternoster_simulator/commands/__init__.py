"""Subcommands of the simulator."""
