"""A comparison of judged models: its sentences, its page, and what a terminal shows of it."""
