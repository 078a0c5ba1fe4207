"""A real Kubernetes cluster of one node on this machine, for the suite and for anyone who wants to try the chart."""
