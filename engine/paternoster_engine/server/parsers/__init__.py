"""An answer's text taken apart as it grows: what the model thinks, what it says, which tools it calls."""
