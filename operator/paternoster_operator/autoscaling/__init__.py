"""How many replicas, and how many sequences each: windows over what engines report, and the law that decides. Pure."""
