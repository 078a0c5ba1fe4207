"""Where objects live: the port :class:`Cluster` and its adapters, a Kubernetes API server and this machine."""
