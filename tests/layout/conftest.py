"""Make the helpers beside the tests importable: the oracle and the diagrams."""

import sys
from pathlib import Path

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.append(HERE)
