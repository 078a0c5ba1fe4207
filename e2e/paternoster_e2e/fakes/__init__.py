"""What stands in for a kubelet and its engines, where a test needs many pods or none that compute."""
