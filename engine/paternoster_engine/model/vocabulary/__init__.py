"""Vocabularies of both kinds, byte-level and SentencePiece: built from a file's fields, and what their tokens spell."""
