"""In which order requests wait, and until when."""
