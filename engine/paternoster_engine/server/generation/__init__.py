"""From sequences of the engine to text that grows: stop strings, streams, beams."""
