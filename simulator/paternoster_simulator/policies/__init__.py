"""What decides in a simulation: the operator's law, a fixed fleet, and the scaling of other systems."""
