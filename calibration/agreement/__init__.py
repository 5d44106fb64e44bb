"""How far a judge and people agree, and people among themselves."""
