"""Read the timeline of a table: instants, active and archived timeline, instant times, and hoodie.properties."""
