"""Which keys each hop to a fleet has, and the Secrets that they are in."""
