"""The routing table: followed at the operator or in a file, read row by row, and from a copy without an operator."""
