"""Exporters: one file format each."""
