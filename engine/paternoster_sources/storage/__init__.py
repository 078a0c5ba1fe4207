"""The folder of fetched models: what is in it, which of them leaves, and who may write."""
