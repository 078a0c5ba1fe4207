"""What came of a comparison: in tables, beside the cheapest that attains as much, and as panels."""
