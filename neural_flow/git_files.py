"""Files as a revision of the git repository has them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from neural_flow.errors import ModelLoadError

PREFIX = "git:"


def read_git_file(spec: str, folder: Path | None = None) -> bytes:
    """Return the bytes of ``git:REV:path``; the path is relative to ``folder`` (the working folder).

    Raises:
        ModelLoadError: no git, no repository, no such revision or file.
    """
    revision, colon, path = spec.removeprefix(PREFIX).partition(":")
    if not colon or not revision or not path or revision.startswith("-"):
        raise ModelLoadError(
            f"cannot read {spec!r}\nit is not git:REV:path", hint="for example git:main:docs/unet.json"
        )
    place = path if path.startswith(("./", "../")) else f"./{path}"
    try:
        ran = subprocess.run(
            ["git", "show", f"{revision}:{place}"],
            cwd=folder,
            capture_output=True,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise ModelLoadError(f"cannot read {spec}\nthere is no git here", hint="install git, or name a file") from error
    except subprocess.CalledProcessError as error:
        found = error.stderr.decode(errors="replace").strip().splitlines()
        raise ModelLoadError(
            f"cannot read {spec}\n{found[0] if found else 'git failed'}",
            hint=f"git show {revision}:{place} must print the file; a shallow clone lacks older revisions",
        ) from error
    return ran.stdout
