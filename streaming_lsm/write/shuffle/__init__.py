"""Exchange rows between tasks: routing and messages."""
