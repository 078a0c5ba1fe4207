"""Which replicas hold which beginnings of prompts: pure, and bounded in memory."""
