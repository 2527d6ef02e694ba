"""Take change events from Kafka to tables, and provide a broker for the demo."""
