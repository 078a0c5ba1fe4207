"""What an engine tells of itself: Prometheus metrics and `/stats`."""
