"""Exporters that draw with matplotlib, which is imported only when something is drawn."""

from neural_flow.registry import load_siblings

load_siblings("neural_flow.export.mpl")
