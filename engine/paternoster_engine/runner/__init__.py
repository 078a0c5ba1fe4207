"""Runs a batch on a device: tensors in, sampled tokens out."""
