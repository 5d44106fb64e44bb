"""Figures, tables and the README's picture, which the pages take from the repository."""
