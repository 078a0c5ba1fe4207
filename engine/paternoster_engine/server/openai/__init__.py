"""The OpenAI API: what clients send, what they get, and the routes between."""
