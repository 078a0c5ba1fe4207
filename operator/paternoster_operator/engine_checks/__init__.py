"""What the operator asks of engines that are not ours, before their replicas count as ready."""
