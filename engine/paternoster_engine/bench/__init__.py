"""Load generation: traces, prompts, a streaming client, and reports that speak vLLM's bench keys. No torch."""
