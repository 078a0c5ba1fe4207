"""Picks replicas for Envoy, by the endpoint picker protocol of the Gateway API Inference Extension."""
