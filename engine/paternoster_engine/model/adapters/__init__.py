"""Low-rank adapters (LoRA, arXiv 2106.09685): PEFT's files, checked, as what a decoder adds to rows."""
