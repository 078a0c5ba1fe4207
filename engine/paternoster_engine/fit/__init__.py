"""What a model would be on GPUs, by its description and their data sheets alone: how much fits, how long steps take."""
