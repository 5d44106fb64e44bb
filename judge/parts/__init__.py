"""Judges of parts of empathy that count words: how they are fitted, measured, and refused below a floor."""
