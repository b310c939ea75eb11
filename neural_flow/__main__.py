"""``python -m neural_flow``."""

from __future__ import annotations

import os
import sys

# -m puts the working folder before everything: a torch.py or json.py that lies there would be taken for the library.
# Commands put the folder of the model in again, once all that neural-flow needs is loaded.
if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from neural_flow.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
