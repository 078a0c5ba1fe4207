"""Why a replica does not start: one file for each part of the cluster that knows. Pure."""
