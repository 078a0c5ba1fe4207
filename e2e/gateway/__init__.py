"""What clients of the deployed gateway get: of a full engine, of any, and without an operator."""
