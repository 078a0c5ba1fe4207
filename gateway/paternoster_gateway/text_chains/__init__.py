"""Which text replicas have cached: one stream from each, read into the index of prefixes."""
