"""A fleet on a terminal: snapshots, the live view, tables."""
