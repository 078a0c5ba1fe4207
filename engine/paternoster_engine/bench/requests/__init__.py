"""Which requests a benchmark sends, how long they are, and when."""
