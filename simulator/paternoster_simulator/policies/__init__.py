"""Who decides in a simulation: the operator's own law, a fleet that nobody steers, and how other systems scale."""
