"""The engines that are compared, ours among them: how each is set up, started and asked."""
