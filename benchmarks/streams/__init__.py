"""Streams through a gateway while the engines behind it are killed and stopped."""
