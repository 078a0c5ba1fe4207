"""What decides in a simulation: the operator's law or a fixed fleet."""
