"""Gateways, engines and a network that fail, in virtual time, around the sessions of the real gateway."""
