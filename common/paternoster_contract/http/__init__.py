"""HTTP between the packages and their clients: paths, routes, what a client may cost, which pages may call."""
