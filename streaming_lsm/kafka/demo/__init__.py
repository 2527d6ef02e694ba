"""Make the change events of the demo's orders table, send them to a topic, and serve their Avro schemas."""
