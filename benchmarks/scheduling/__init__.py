"""What each scheduling idea gains: the real scheduler and engine on a virtual clock, step costs from a profile."""
