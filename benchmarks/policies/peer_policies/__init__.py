"""How other fleet systems scale, re-implemented from their source, one a file.

Each is a :class:`~peer_policies.peer.Peer`: settings with the peer's own names and defaults, and
the values that a search may try. None of them moves the live cap: engines keep the ``max_num_seqs`` they started with.
"""
