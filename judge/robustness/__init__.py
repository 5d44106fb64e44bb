"""Robustness: perturbations of replies, and how a judge reacts to them."""
