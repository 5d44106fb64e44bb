"""Speakers for a model to talk with, scripted or played by a second model, and their conversations."""
