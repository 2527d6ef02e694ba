"""A simulator of processes that write, maintain and read one table, and of all that can happen to them."""
