"""A selection as text: what is drawn, in order, repeats indented under their box."""

from __future__ import annotations

from collections import Counter

from neural_flow.records import Fold, Selection, Stage


def hidden_stages(selection: Selection) -> set[int]:
    """Return the stages that are not drawn: all but the representatives of folds."""
    hidden: set[int] = set()
    for fold in selection.folds:
        for number, member in enumerate(fold.members):
            if number != fold.representative:
                hidden |= set(member)
    return hidden


def count_cards(selection: Selection) -> int:
    """Return the number of cards: stages that are drawn; of each drawn interval one."""
    hidden = hidden_stages(selection)
    spared = 0
    for fold in selection.folds:
        if fold.kind == "interval" and fold.members[0][0] not in hidden:
            spared += len(fold.members[0]) - 1
    return sum(s.kind in ("module", "op") and s.stage_id not in hidden for s in selection.stages) - spared


def outline(selection: Selection) -> str:
    """Return the drawn figure as sorted text, then marks, groups and counts."""
    children: dict[int | None, list[Fold]] = {}
    for fold in selection.folds:
        children.setdefault(fold.parent_id, []).append(fold)
    lines: list[str] = []

    def visit(ids: tuple[int, ...], parent: int | None, indent: str) -> None:
        starts: dict[int, tuple[Fold, set[int]]] = {}
        for fold in children.get(parent, []):
            inside = {k for member in fold.members for k in member}
            if inside <= set(ids):
                starts[min(inside)] = fold, inside
        done: set[int] = set()
        for k in ids:
            if k in done:
                continue
            if k in starts:
                fold, inside = starts[k]
                done |= inside
                dense = " dense" if fold.is_dense else ""
                lines.append(f"{indent}{fold.kind} ×{fold.count}{dense} {fold.label}")
                if fold.kind != "interval":
                    visit(fold.members[fold.representative], fold.fold_id, indent + "    ")
            else:
                lines.append(indent + describe(selection.stages[k]))

    visit(tuple(range(len(selection.stages))), None, "")
    marks = Counter((mark.path, mark.text) for mark in selection.marks)
    lines += [f"mark {path}: {text}, {count} times" for (path, text), count in marks.items()]
    lines += [f"group {group.label} = {group.module}: {len(group.stage_ids)} stages" for group in selection.groups]
    lines += [f"note {note}" for note in selection.notes]
    lines.append(
        f"cards {count_cards(selection)} of {selection.num_candidates}, hidden inputs {selection.plumbing_inputs}"
    )
    return "\n".join(lines) + "\n"


def describe(stage: Stage) -> str:
    shapes = " ".join("×".join(map(str, meta.shape)) for meta in stage.outputs)
    joined = "".join(f" + {name}" for name in stage.joined_names)
    params = f" params {stage.num_params}" if stage.num_params else ""
    shared = f" shared {stage.num_shared_params}" if stage.num_shared_params else ""
    return f"{stage.kind} {stage.label} = {stage.name}{joined} [{shapes}]{params}{shared}".rstrip()
