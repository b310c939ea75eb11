"""The passes that run the model: metadata, activations, attention, and the session that leaves no trace."""
