"""What is reported of a fleet: status, conditions with their reasons, events, history. Pure."""
