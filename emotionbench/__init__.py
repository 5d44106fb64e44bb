"""The second study, whole: whether a model's reported feelings move as people's do."""
