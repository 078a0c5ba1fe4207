"""The part of a pod that a resource may bring: its fields, and those that are the operator's."""
