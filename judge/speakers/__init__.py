"""Scripted speakers for a model to talk with, and the conversations with them."""
