"""One engine in virtual time: the real scheduler, blocks that are only counted, many steps taken at once."""
