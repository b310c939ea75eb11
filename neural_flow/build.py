"""Many figures at once: those listed in pyproject.toml, each made by a process of its own.

A file is rewritten only when something that matters changed: the fingerprint of the architecture, the options, the
bytes of a file that went into it, or our version. Other last bits of an activation, as another processor computes
them, change nothing. What was seen last time stands in a manifest beside the files.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from neural_flow import __version__, graph_json
from neural_flow.diff import diff_topologies, difference_lines
from neural_flow.errors import ExportError, ModelLoadError
from neural_flow.export._base import write_whole
from neural_flow.figures import Figure
from neural_flow.git_files import PREFIX, read_git_file

MANIFEST = "neural-flow.lock"
MANIFEST_SCHEMA = "neural-flow.manifest/1"
BASE_VARIABLE = "GITHUB_BASE_REF"
_NOT_FOR_CHILDREN = ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY")
_PACKAGE_FOLDER = Path(__file__).resolve().parent

State = Literal["unchanged", "written", "stale", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a child process left: its exit code and what it wrote to its streams."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltFigure:
    """What became of one figure. ``changes`` are lines of the difference to the base, None where there is no base."""

    figure: Figure
    state: State
    code: int = 0
    messages: str = ""
    files: tuple[Path, ...] = ()
    num_stages: int = 0
    num_params: int = 0
    fingerprint: str = ""
    changes: tuple[str, ...] | None = None
    markdown: str = ""
    entry: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Children:
    """Processes that run at a time; leaving the context ends those that still run. A context manager."""

    def __init__(self, folder: Path, num_at_a_time: int) -> None:
        self._folder = folder
        self._pool = ThreadPoolExecutor(num_at_a_time)
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._is_over = False
        self._environment = child_environment(num_at_a_time)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._lock:
            self._is_over = True
            running = list(self._running)
        if kind is not None:
            for process in running:
                process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def run_all(self, commands: Sequence[Sequence[str]]) -> Iterator[tuple[int, Ran]]:
        """Run neural-flow with each list of arguments; yield (index, what it left) as each ends."""
        futures = {self._pool.submit(self._run, command): index for index, command in enumerate(commands)}
        for future in as_completed(futures):
            yield futures[future], future.result()

    def _run(self, arguments: Sequence[str]) -> Ran:
        with self._lock:
            if self._is_over:
                return Ran(code=130, stdout="", stderr="")
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "neural_flow", *arguments],
                cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace",
            )  # fmt: skip
            self._running.add(process)
        try:
            stdout, stderr = process.communicate()
        finally:
            with self._lock:
                self._running.discard(process)
        return Ran(code=process.returncode, stdout=stdout, stderr=stderr)


def child_environment(num_at_a_time: int) -> dict[str, str]:
    """Return the environment of a child: ours importable, threads shared out, no workflow of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_CHILDREN}
    environment["PYTHONIOENCODING"] = "utf-8"
    if "site-packages" not in _PACKAGE_FOLDER.parts:  # run from a checkout: -P keeps the working folder off the path
        paths = [str(_PACKAGE_FOLDER.parent), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if num_at_a_time > 1:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // num_at_a_time)))
    return environment


def build_figures(
    figures: Sequence[Figure],
    folder: Path,
    defaults: Mapping[str, Any],
    *,
    num_jobs: int = 1,
    is_check: bool = False,
    on_done: Callable[[BuiltFigure], None] | None = None,
) -> list[BuiltFigure]:
    """Make all figures, and return what became of each, in their order.

    Args:
        figures: what to make; paths are relative to ``folder``.
        folder: the one that holds pyproject.toml.
        defaults: the table of defaults, which decides what a figure is.
        num_jobs: how many processes run at a time.
        is_check: write nothing.
        on_done: told each figure as it ends.

    Raises:
        ModelLoadError: the manifest cannot be read.
    """
    manifest = read_manifest(folder)
    built: dict[int, BuiltFigure] = {}
    with tempfile.TemporaryDirectory(prefix="neural-flow-") as name, Children(folder, num_jobs) as children:
        works = [Path(name, str(index)) for index in range(len(figures))]
        for work in works:
            work.mkdir()
        commands = [_command(figure, work) for figure, work in zip(figures, works, strict=True)]
        for index, ran in children.run_all(commands):
            known = manifest.get(figures[index].name, {})
            built[index] = _finish(figures[index], works[index], ran, folder, known, defaults, is_check)
            if on_done is not None:
                on_done(built[index])
    return [built[index] for index in range(len(figures))]


def write_manifest(folder: Path, built: Sequence[BuiltFigure], *, keeps_others: bool) -> bool:
    """Remember what the figures were made from; return whether the manifest has changed.

    Args:
        folder: where it stands.
        built: the figures; failed ones keep their old entry.
        keeps_others: whether entries of figures that were not built stay.

    Raises:
        ExportError: it cannot be written.
    """
    old = read_manifest(folder)
    new: dict[str, Any] = dict(old) if keeps_others else {}
    for found in built:
        entry = found.entry or old.get(found.figure.name)
        if entry:
            new[found.figure.name] = entry
    if new == old:
        return False
    data = {"schema": MANIFEST_SCHEMA, "figures": {name: new[name] for name in sorted(new)}}
    write_whole(folder / MANIFEST, (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode())
    return True


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the entries of the manifest by figure; empty where there is none.

    Raises:
        ModelLoadError: it is no manifest of ours.
    """
    file = folder / MANIFEST
    if not file.exists():
        return {}
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["schema"] != MANIFEST_SCHEMA:
            raise ValueError(f"its schema is {data['schema']!r}")
        return dict(data["figures"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelLoadError(
            f"cannot read {file}\n{type(error).__name__}: {error}", hint="delete it: the next build writes it anew"
        ) from error


def _command(figure: Figure, work: Path) -> list[str]:
    command = ["render", figure.target, *figure.arguments, "-q", "--record", str(work / "record.json")]
    for index, output in enumerate(figure.files):
        command += ["-o", str(work / f"{index}{Path(output).suffix}")]
    return [*command, "-o", str(work / "graph.json"), "-o", str(work / "summary.md")]


def _finish(
    figure: Figure,
    work: Path,
    ran: Ran,
    folder: Path,
    known: Mapping[str, Any],
    defaults: Mapping[str, Any],
    is_check: bool,
) -> BuiltFigure:
    if ran.code != 0:
        return BuiltFigure(figure=figure, state="failed", code=ran.code if ran.code > 0 else 130, messages=ran.stderr)
    graph = json.loads((work / "graph.json").read_text(encoding="utf-8"))
    entry = _entry(figure, graph, json.loads((work / "record.json").read_text(encoding="utf-8")), defaults)
    targets = [folder / output for output in figure.files]
    is_fresh = _without_torch(entry) == _without_torch(known) and all(target.exists() for target in targets)
    state: State = "unchanged" if is_fresh else "stale" if is_check else "written"
    changes = _changes_to_base(figure, graph, folder)
    code, messages, files = 1 if state == "stale" else 0, ran.stderr, list[Path]()
    if state == "written":
        try:
            for index, target in enumerate(targets):
                data = (work / f"{index}{target.suffix}").read_bytes()
                if not target.exists() or target.read_bytes() != data:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    write_whole(target, data)
                    files.append(target)
        except (ExportError, OSError) as error:
            code, state, messages = ExportError.exit_code, "failed", f"{messages}error: {error}\n"
    return BuiltFigure(
        figure=figure,
        state=state,
        code=code,
        messages=messages,
        files=tuple(files),
        num_stages=len(graph["nodes"]),
        num_params=graph["model"]["num_params"],
        fingerprint=graph["fingerprint"],
        changes=changes,
        markdown=(work / "summary.md").read_text(encoding="utf-8"),
        entry={} if state == "failed" else known if is_fresh else entry,
    )


def _entry(
    figure: Figure, graph: Mapping[str, Any], record: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "fingerprint": graph["fingerprint"],
        "command": shlex.join(["render", figure.target, *figure.arguments]),
        "defaults": {name: defaults[name] for name in sorted(defaults)},
        "outputs": list(figure.files),
        "sources": record["sources"],
        "neural_flow": __version__,
        "torch": record["torch"],
    }


def _without_torch(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides about rewriting: another version of PyTorch draws the same architecture."""
    return {key: value for key, value in entry.items() if key != "torch"}


def _changes_to_base(figure: Figure, graph: Mapping[str, Any], folder: Path) -> tuple[str, ...] | None:
    base = _base_graph(figure, folder)
    if base is None:
        return None
    try:
        before, after = graph_json.topology_from_json(base), graph_json.topology_from_json(graph)
    except ModelLoadError:
        return None
    return tuple(difference_lines(diff_topologies(before, after)))


def _base_graph(figure: Figure, folder: Path) -> dict[str, Any] | None:
    """Return the stored graph: as the base of the pull request has it, else as it lies in the folder."""
    name = next((output for output in figure.files if output.endswith(".json")), None)
    if name is None:
        return None
    if base := os.environ.get(BASE_VARIABLE):
        try:
            return json.loads(read_git_file(f"{PREFIX}origin/{base}:{name}", folder))
        except (ModelLoadError, ValueError):  # a shallow clone, or a new figure
            pass
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
