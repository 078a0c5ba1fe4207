"""How other fleet systems scale, re-implemented from their documentation and source, one a file."""
