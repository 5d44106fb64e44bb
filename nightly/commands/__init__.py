"""The commands: parse, call, print. Whatever is heavy is imported inside the command that needs it."""
