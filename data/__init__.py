"""What we know: records, readers, rubrics, published figures, run folders and samples."""
