"""The history as a site."""
