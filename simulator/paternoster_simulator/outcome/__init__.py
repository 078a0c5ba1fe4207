"""What came of a simulation: recorded by request, summed up, printed in lines and on a page."""
