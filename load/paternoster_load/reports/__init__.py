"""Reports of a run: numbers, charts, a page."""
