"""The exchange of rows between tasks: routing and messages."""
