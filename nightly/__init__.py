"""Puts the rooms together: score, summarise, compare."""
