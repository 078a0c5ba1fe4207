"""The places that models are fetched from, one a file."""
