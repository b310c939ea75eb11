"""Measurements: one number a stage from an extra pass; one file each."""
