"""What attackers send: kinds of attacks, and requests byte by byte."""
