"""Records of the calls of a gateway."""
