"""Records, readers of files, run folders and importers."""
