"""How each system writes and reads a table; every module has an `open_system`."""
