"""Run untrusted templates and grammars in a process that the kernel ends at its limits."""
