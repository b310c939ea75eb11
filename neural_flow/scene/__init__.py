"""From topology, capture and layout to marks."""
