"""Products by weight matrices: plain, of few bits, one of several for each row, and low-rank adapters."""
