"""Who may call whom: bearer keys, the files that they are in, and who a key says that its sender is."""
