"""Convert change events from Kafka to rows for the sink, and provide a broker and events for the demo."""
