"""Loaders: from what a user types to a model, its inputs and its weights."""
