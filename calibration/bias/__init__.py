"""Where a judge deviates from people."""
