"""Convert between Arrow arrays and numpy arrays; shared by all packages."""
