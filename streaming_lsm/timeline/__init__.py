"""The order of what happened to a table: instants, the transaction that adds one, recovery from a writer's death."""
