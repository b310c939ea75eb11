"""Layout styles: from a diagram and sizes to positions and routes."""
