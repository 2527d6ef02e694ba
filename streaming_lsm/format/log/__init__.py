"""Log files: footers of native ones, blocks of inline ones, delete blocks."""
