"""Pods as processes of this machine: supervision, probes, rolling updates."""
