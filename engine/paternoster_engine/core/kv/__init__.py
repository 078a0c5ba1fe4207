"""Who holds which KV block, and by which keys blocks are found."""
