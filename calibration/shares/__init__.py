"""Shares of labels: counted, corrected, and carried to models nobody rated."""
