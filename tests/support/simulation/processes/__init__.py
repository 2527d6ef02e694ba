"""What runs in the simulated processes."""
