"""Files as other people and tools write them, read into exchanges: bytes into rows, rows by their shape."""
