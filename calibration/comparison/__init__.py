"""Models compared: by judgments, by ratings."""
