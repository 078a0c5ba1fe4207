"""Engine pods as the cluster shows them: containers, what the scheduler compares, events about them. Pure."""
