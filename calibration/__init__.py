"""Statistics of judgments and ratings; knows no judge."""
