"""Judges, and the engines that run them over a file of replies."""
