"""Nights, gates, history, dashboard; nothing else."""
