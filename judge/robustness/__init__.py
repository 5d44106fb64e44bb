"""Replies rewritten and judged again."""
