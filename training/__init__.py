"""How judges are made and evaluated; only commands import it."""
