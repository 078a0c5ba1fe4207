"""Vectors of texts, and how well texts go together: embeddings as OpenAI, Cohere and Voyage, rerank, score."""
