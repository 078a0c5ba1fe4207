"""The front door of a fleet: one OpenAI endpoint over many engines."""
