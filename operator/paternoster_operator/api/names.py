"""Names of LLMDeployments and what their children make of them. Pure."""

NAME_PATTERN = r"^[a-z]([-.a-z0-9]*[a-z0-9])?$"
"""A Service's name begins with a letter and has no dots (RFC 1035), and takes its LLMDeployment's."""


def child_name(name: str) -> str:
    """Name of the children of the LLMDeployment ``name``: the same with dashes for dots."""
    return name.replace(".", "-")
