"""Make the change events of the demo's orders table, serve their Avro schemas, and print and compare the table."""
