"""hoodie.properties, merge modes, file names, partition metadata."""
