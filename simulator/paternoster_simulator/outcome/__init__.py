"""What came of a simulation: recorded by request, summed up, told in lines and on a page."""
