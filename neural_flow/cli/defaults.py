"""The table ``[tool.neural-flow.defaults]`` of the nearest pyproject.toml: any option by its name."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neural_flow.errors import UsageError


def find_pyproject(folder: Path | None = None) -> Path | None:
    """Return the nearest pyproject.toml in ``folder`` (the working folder) or above it."""
    start = (folder or Path.cwd()).resolve()
    return next((file for above in (start, *start.parents) if (file := above / "pyproject.toml").is_file()), None)


def read_table(file: Path) -> dict[str, Any]:
    """Return the table ``[tool.neural-flow]`` of ``file``; empty where it has none.

    Raises:
        UsageError: the file is not TOML.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}\n{error}", hint="correct the TOML there") from error
    tool = content.get("tool", {})
    return tool.get("neural-flow", {}) if isinstance(tool, dict) else {}


def defaults_for(commands: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return, by command, the defaults in the nearest pyproject.toml under the names of the command's parameters.

    Args:
        commands: click commands by name.

    Raises:
        UsageError: an option that no command has.
    """
    file = find_pyproject()
    table = read_table(file).get("defaults", {}) if file else {}
    if not table:
        return {}
    by_command: dict[str, dict[str, Any]] = {name: {} for name in commands}
    for option, value in table.items():
        is_known = False
        for name, command in commands.items():
            if (found := _parameter(command.params, option)) is not None:
                by_command[name].update({found[0]: _as_typed(value, found[1], option)})
                is_known = True
        if not is_known:
            raise _unknown(option, commands, file)
    return by_command


def _parameter(parameters: Sequence[Any], option: str) -> tuple[str, Any] | None:
    """Return (parameter name, parameter) of the option called ``option``, as ``--no-fold`` too."""
    flag = f"--{option.replace('_', '-')}"
    for parameter in parameters:
        if flag in parameter.opts or flag in parameter.secondary_opts or f"-{option}" in parameter.opts:
            return parameter.name, parameter
    return None


def _as_typed(value: Any, parameter: Any, option: str) -> Any:
    if f"--{option.replace('_', '-')}" in parameter.secondary_opts and isinstance(value, bool):
        return not value
    if getattr(parameter, "multiple", False) and not isinstance(value, list):
        return [value]
    return value


def _unknown(option: str, commands: Mapping[str, Any], file: Path | None) -> UsageError:
    known = sorted(
        {flag[2:] for command in commands.values() for p in command.params for flag in p.opts if flag[:2] == "--"}
    )
    near = difflib.get_close_matches(option, known, n=1)
    return UsageError(
        f"[tool.neural-flow.defaults] of {file} has the unknown option {option!r}\nno command takes --{option}",
        hint=f"did you mean {near[0]!r}?" if near else "neural-flow render --help lists the options",
    )
