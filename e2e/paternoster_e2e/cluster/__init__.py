"""The processes of a cluster's nodes: what they need of the machine, how they start, and how they end."""
