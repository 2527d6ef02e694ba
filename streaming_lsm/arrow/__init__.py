"""Arrow arrays as numpy arrays and back, for all rooms."""
