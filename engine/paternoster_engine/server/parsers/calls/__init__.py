"""How calls are written, a file for each format, and what formats have in common."""
