"""What engines are started with, a file for each topic; ``engine_args`` puts them together."""
