"""Convert messages to events: parse documents, check and convert their values, and give the reason for bad ones."""
