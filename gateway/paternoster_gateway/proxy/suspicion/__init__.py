"""Which request made replicas stop."""
