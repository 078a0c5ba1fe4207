"""What fails beside the operator: itself, its leader, the API server, and what stands before that."""
