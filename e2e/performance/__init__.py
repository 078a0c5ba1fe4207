"""What the operator costs with many fleets: a control plane, fake nodes and engines, and one real operator."""
