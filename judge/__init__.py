"""Asks and predicts: the judges, the engine that runs them, and their training."""
