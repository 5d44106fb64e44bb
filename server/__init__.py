"""The judge over HTTP."""
