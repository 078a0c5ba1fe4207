"""Why a replica does not start: one file for each component that reports it. Pure."""
