"""Which served name each fleet has."""
