"""``lsm``, the command line."""
