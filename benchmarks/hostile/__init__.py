"""A fleet of two real engines under attack: a soak that looks for leaks, and what a well-behaved client feels."""
