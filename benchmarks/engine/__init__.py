"""The engine alone on this machine: decoding, whole batches, int8, an idle server, a million requests."""
