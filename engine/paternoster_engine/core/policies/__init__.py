"""Decisions the scheduler leaves to a policy, one kind a file, each policy a small class chosen by name."""
