"""Decisions about which replica gets a request: pure, with the time as an argument."""
