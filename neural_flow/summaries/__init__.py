"""Summary kinds: how a tensor becomes a picture; one file a kind."""
