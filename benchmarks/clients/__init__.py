"""Clients and load generators of others against one real engine."""
