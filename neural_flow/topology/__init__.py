"""Topology sources and the walk from dataflow to edges."""
