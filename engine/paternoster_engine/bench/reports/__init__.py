"""What a run is told as: numbers, charts, a page."""
