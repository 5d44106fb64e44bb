"""The calibration report, a module a section."""
