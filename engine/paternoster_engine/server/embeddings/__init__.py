"""Vectors of texts, and how well texts go together: OpenAI's embeddings, rerank as Jina and Cohere, score as vLLM."""
