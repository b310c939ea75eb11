"""``python -m neural_flow``."""

from __future__ import annotations

from neural_flow.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
