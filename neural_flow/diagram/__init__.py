"""From a topology to what is drawn: folds applied, joins as rings, plumbing hidden, frames found."""

from neural_flow.diagram.build import build_diagram

__all__ = ["build_diagram"]
