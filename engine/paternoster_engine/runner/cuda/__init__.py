"""Decoding as captured CUDA graphs. All but capture and replay itself also runs, and is tested, on a CPU."""
