"""Where a judge strays from people."""
