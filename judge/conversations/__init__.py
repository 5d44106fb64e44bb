"""The judge of whole conversations: what it looks at, how it is fitted, and how it judges."""
