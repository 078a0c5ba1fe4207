"""What steps cost on a machine: measured, fitted, written as a profile."""
