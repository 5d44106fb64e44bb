"""Placeholder."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PromptFit:
    state: str = "responsive"
