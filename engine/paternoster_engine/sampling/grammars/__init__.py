"""Which tokens a grammar allows next: compiled once, followed for each sequence, applied to its logits."""
