"""Files of models: what they may say, and their tensors by name."""
