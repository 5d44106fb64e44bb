"""One file a command: options, call, print."""
