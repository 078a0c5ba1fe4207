"""Traces of requests and synthetic traffic: arrivals, lengths, shared prefixes, and prompts of such lengths.

A leaf package: numpy and the standard library only.
"""
