"""The load generator: a streaming client of the OpenAI API and reports under vLLM's bench keys. No torch, no engine."""
