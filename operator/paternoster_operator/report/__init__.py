"""What is told of a fleet: status, conditions with their reasons, events, history. Pure."""
