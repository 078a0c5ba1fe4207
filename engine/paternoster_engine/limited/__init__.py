"""What clients and models wrote, run in a process that the kernel ends at its limits."""
