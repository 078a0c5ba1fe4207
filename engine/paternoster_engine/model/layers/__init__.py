"""The parts that a decoder is made of."""
