"""What a cluster runs, built once and kept outside the checkout: programs, and images of this release and the last."""
