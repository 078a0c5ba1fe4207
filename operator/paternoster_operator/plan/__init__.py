"""Pure: from what is observed of a fleet to everything that is to be done about it, as one frozen ``Plan``."""
