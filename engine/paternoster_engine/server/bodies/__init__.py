"""How bodies of requests are read: bounded before they are parsed, in turns by tenant, with short errors."""
