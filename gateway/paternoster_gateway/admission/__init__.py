"""Which requests may enter: their keys, the parties they count for, the bodies that stopped a replica. Pure."""
