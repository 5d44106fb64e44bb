"""Published figures of studies, as counts."""
