"""HTTP servers whose clients are bounded before they are believed."""
