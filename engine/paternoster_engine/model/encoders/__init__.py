"""Models that read a text in both directions: BERT (arXiv 1810.04805) and what is built as it is."""
