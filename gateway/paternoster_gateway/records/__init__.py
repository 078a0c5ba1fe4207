"""What became of the calls of a gateway."""
