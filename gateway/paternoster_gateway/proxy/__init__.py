"""A request sent on to a replica, and its answer sent back."""
