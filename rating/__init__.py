"""Ratings from people: who rates which replies, the page to rate them on, and what comes back."""
