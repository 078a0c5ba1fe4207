"""The control loops: what each moves, one file each, with the demand and the limits that replicas follow."""
