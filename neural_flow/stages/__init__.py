"""Which calls are drawn, and how repeats fold."""
