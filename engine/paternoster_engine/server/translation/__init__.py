"""What the APIs have in common that are translations of chat completions."""
