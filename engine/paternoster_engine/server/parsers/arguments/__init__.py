"""Grammars of a call's arguments, by how a format writes them."""
