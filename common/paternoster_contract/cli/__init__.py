"""The command `paternoster`: its subcommands, and how all of them log."""
