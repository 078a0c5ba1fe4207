"""The processes of one node: what they need of the machine, how they start, and how they end."""
