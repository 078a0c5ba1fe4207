"""One call from its admission to the end of its answer, whatever the replicas do: decisions alone, pure."""
