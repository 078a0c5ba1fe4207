"""The parts of the resource as types, a file for each topic; no logic. ``v1alpha1`` puts them together."""
