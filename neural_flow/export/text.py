"""The sorted text form of a scene: what golden tests compare. Numbers are rounded to 0.01 pt."""

from __future__ import annotations

import hashlib
from typing import assert_never

from neural_flow.drawing import ExportOptions, Image, Mark, Path, Picture, Rect, Scene, Text
from neural_flow.export._base import EXPORTERS
from neural_flow.export._lowering import number, path_data


@EXPORTERS.register(".txt")
def export_text(picture: Picture, options: ExportOptions) -> bytes:
    """Return every page of ``picture`` as sorted text."""
    return "\n".join(scene_text(scene) for scene in picture.scenes).encode()


def scene_text(scene: Scene) -> str:
    """Return ``scene`` as text: one line a mark, sorted by group, layer and place."""
    lines = [f"scene {number(scene.width)} x {number(scene.height)} on {scene.background or 'nothing'}"]
    lines += [f"title {scene.title}", f"description {scene.description}"]
    for group in sorted(scene.groups, key=lambda group: _natural(group.group_id)):
        data = "".join(f" {key}={value}" for key, value in group.data)
        title = group.title.replace("\n", " | ")
        lines.append(f"group {group.group_id} {group.css_class}{data}: {title}")
    marks = sorted((_natural(mark.group), mark.layer, _line(mark)) for mark in scene.marks)
    lines += [line for _, _, line in marks]
    return "\n".join(lines) + "\n"


def _natural(name: str) -> tuple[str, int]:
    stem, _, tail = name.rpartition("-")
    return (stem, int(tail)) if tail.isdigit() else (name, -1)


def _line(mark: Mark) -> str:
    where = f"{mark.group or '-'} {number(mark.layer)}"
    match mark:
        case Rect():
            box = _box(mark.x, mark.y, mark.width, mark.height)
            return f"{where} rect {box} r={number(mark.radius)} {_style(mark)}"
        case Path():
            dash = f" dash={','.join(map(number, mark.dash))}" if mark.dash else ""
            return f"{where} path {path_data(mark.commands)} {_style(mark)}{dash}"
        case Text():
            place = f"{number(mark.x)} {number(mark.y)} {mark.anchor}"
            return f"{where} text {place} {number(mark.size)} {mark.weight} {mark.color} {mark.text!r}"
        case Image():
            box = _box(mark.x, mark.y, mark.width, mark.height)
            shape = "x".join(map(str, mark.pixels.shape))
            return f"{where} image {box} {shape} {_digest(mark)}"
        case _:
            assert_never(mark)


def _box(x: float, y: float, width: float, height: float) -> str:
    return " ".join(map(number, (x, y, width, height)))


def _style(mark: Rect | Path) -> str:
    return f"fill={mark.fill or '-'} stroke={mark.stroke or '-'} {number(mark.stroke_width)}"


def _digest(mark: Image) -> str:
    data = mark.pixels.tobytes() + (b"" if mark.palette is None else mark.palette.tobytes())
    return hashlib.sha256(data).hexdigest()[:12]
