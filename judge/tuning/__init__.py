"""Fitting prompted judges and panels to ratings."""
