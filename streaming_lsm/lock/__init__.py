"""The table's lock, heartbeats and markers: what keeps writers apart."""
