"""Delete partitions that have expired."""
