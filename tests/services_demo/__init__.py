"""``make demo-services``: a stream with all table services beside it, checked after every step."""
