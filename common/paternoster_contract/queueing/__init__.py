"""In which order requests wait, in an engine and before a fleet, and for how long. Pure."""
