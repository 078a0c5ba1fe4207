"""The engine measured in process: offline throughput, step costs, live caps, and modes of batching side by side."""
