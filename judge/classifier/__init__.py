"""The fine-tuned judges: running, training, measuring them."""
