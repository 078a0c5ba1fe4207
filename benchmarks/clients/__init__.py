"""Clients and load generators of others against one real engine: does each get what it asks for?"""
