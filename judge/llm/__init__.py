"""Language models as judges, and the one network seam."""
