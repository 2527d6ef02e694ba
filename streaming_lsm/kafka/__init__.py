"""Kafka: change-event envelopes become rows for the sink; a broker and events for the demo."""
