"""Where weights come from, what they mean, and the architectures that run them."""
