"""Refused requests and faults as error bodies of the API that a client speaks."""
