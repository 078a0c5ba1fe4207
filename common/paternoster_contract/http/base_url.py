"""URLs made of an address and a port, of either family."""


def join_base_url(host: str, port: int, scheme: str = "http") -> str:
    """Base URL of a server; an IPv6 address stands in brackets (RFC 3986, 3.2.2)."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
