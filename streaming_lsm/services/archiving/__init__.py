"""Archive the timeline: move completed actions that are no longer needed into the history."""
