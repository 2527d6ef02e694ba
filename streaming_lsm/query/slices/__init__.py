"""Read and merge the files of file slices."""
