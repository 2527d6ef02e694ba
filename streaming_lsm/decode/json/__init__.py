"""Read JSON documents: many at a time with Arrow's parser, one at a time strictly."""
