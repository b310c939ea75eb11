"""The commands. Nothing here imports torch before a command runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from neural_flow.cli import options as opt

app = typer.Typer(
    name="neural-flow",
    help="Draw a PyTorch model as it really runs: every stage with its real activation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version  # a slow import that nothing else needs

        python = ".".join(map(str, sys.version_info[:3]))
        sys.stdout.write(f"neural-flow {version('neural-flow')} (torch {version('torch')}, Python {python})\n")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Draw a PyTorch model as it really runs: every stage with its real activation."""


@app.command()
def render(
    context: typer.Context,
    target: opt.Target,
    outputs: opt.Outputs = None,
    format_name: opt.Format = None,
    arguments: opt.Arguments = None,
    weights: opt.Weights = None,
    unsafe_load: opt.UnsafeLoad = False,
    allow_download: opt.AllowDownload = False,
    seed: opt.Seed = 0,
    device: opt.Device = None,
    train: opt.Train = False,
    autocast: opt.Autocast = False,
    inputs: opt.Inputs = None,
    inputs_function: opt.InputsFunction = None,
    batch_dim: opt.BatchDim = "auto",
    sample: opt.Sample = 0,
    tokens: opt.Tokens = None,
    class_labels: opt.ClassLabels = None,
    detail: opt.Detail = "auto",
    depth: opt.Depth = None,
    select: opt.Select = None,
    exclude: opt.Exclude = None,
    types: opt.Types = None,
    max_stages: opt.MaxStages = 24,
    fold: opt.Fold = True,
    expand: opt.Expand = None,
    collapse: opt.Collapse = None,
    topology: opt.TopologySource = "auto",
    tracer: opt.Tracer = "auto",
    capture: opt.CaptureValues = True,
    capture_device: opt.CaptureDevice = "cpu",
    fake: opt.Fake = False,
    attention: opt.Attention = True,
    heads: opt.Heads = None,
    gradients: opt.Gradients = False,
    saved: opt.Saved = False,
    color_by: opt.ColorBy = None,
    stats: opt.Stats = None,
    strict: opt.Strict = False,
    layout: opt.LayoutStyle = "auto",
    direction: opt.Direction = "auto",
    width: opt.Width = None,
    theme: opt.ThemeName = "light",
    transparent: opt.Transparent = False,
    cmap: opt.Cmap = None,
    norm: opt.Norm = "channel",
    dpi: opt.Dpi = None,
    title: opt.Title = None,
    legend: opt.Legend = True,
    labels: opt.Labels = None,
    highlight: opt.Highlight = None,
    shapes: opt.Shapes = True,
    font: opt.Font = None,
    text_as_paths: opt.TextAsPaths = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
    record: opt.Record = None,
) -> int:
    """Draw the figure, write the graph as data, or both."""
    from neural_flow.cli.rendering import run_render

    return run_render(context.params)


@app.command()
def summary(
    context: typer.Context,
    target: opt.Target,
    json: Annotated[bool, typer.Option("--json", help="Answer as JSON.")] = False,
    arguments: opt.Arguments = None,
    weights: opt.Weights = None,
    unsafe_load: opt.UnsafeLoad = False,
    allow_download: opt.AllowDownload = False,
    seed: opt.Seed = 0,
    device: opt.Device = None,
    train: opt.Train = False,
    autocast: opt.Autocast = False,
    inputs: opt.Inputs = None,
    inputs_function: opt.InputsFunction = None,
    depth: opt.Depth = None,
    select: opt.Select = None,
    exclude: opt.Exclude = None,
    types: opt.Types = None,
    tracer: opt.Tracer = "auto",
    fake: opt.Fake = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
) -> int:
    """Show a table: the tree of modules with shapes, parameters, FLOPs, bytes and time."""
    from neural_flow.cli.costing import run_summary

    return run_summary(context.params)


@app.command()
def memory(
    context: typer.Context,
    target: opt.Target,
    json: Annotated[bool, typer.Option("--json", help="Answer as JSON.")] = False,
    arguments: opt.Arguments = None,
    weights: opt.Weights = None,
    unsafe_load: opt.UnsafeLoad = False,
    allow_download: opt.AllowDownload = False,
    seed: opt.Seed = 0,
    device: opt.Device = None,
    train: opt.Train = True,
    autocast: opt.Autocast = False,
    inputs: opt.Inputs = None,
    inputs_function: opt.InputsFunction = None,
    detail: opt.Detail = "auto",
    depth: opt.Depth = None,
    select: opt.Select = None,
    exclude: opt.Exclude = None,
    types: opt.Types = None,
    max_stages: opt.MaxStages = 24,
    fold: opt.Fold = True,
    expand: opt.Expand = None,
    collapse: opt.Collapse = None,
    tracer: opt.Tracer = "auto",
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
) -> int:
    """Show what autograd saves for the backward pass, by stage, and what checkpointing or offloading would save."""
    from neural_flow.cli.costing import run_memory

    return run_memory(context.params)


@app.command()
def diff(
    context: typer.Context,
    before: Annotated[
        str, typer.Argument(metavar="A", show_default=False, help="A target, a graph .json, or git:REV:path/graph.json")
    ],
    after: Annotated[str, typer.Argument(metavar="B", show_default=False, help="The same; what A became")],
    outputs: Annotated[
        list[str] | None,
        typer.Option("-o", "--output", metavar="FILE", help="Text, JSON or a figure with both models; repeatable."),
    ] = None,
    format_name: opt.Format = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 where the models differ.")] = False,
    arguments: opt.Arguments = None,
    weights: opt.Weights = None,
    unsafe_load: opt.UnsafeLoad = False,
    allow_download: opt.AllowDownload = False,
    seed: opt.Seed = 0,
    device: opt.Device = None,
    train: opt.Train = False,
    autocast: opt.Autocast = False,
    inputs: opt.Inputs = None,
    inputs_function: opt.InputsFunction = None,
    detail: opt.Detail = "auto",
    depth: opt.Depth = None,
    select: opt.Select = None,
    exclude: opt.Exclude = None,
    types: opt.Types = None,
    max_stages: opt.MaxStages = 24,
    fold: opt.Fold = True,
    expand: opt.Expand = None,
    collapse: opt.Collapse = None,
    topology: opt.TopologySource = "auto",
    tracer: opt.Tracer = "auto",
    fake: opt.Fake = False,
    layout: opt.LayoutStyle = "auto",
    direction: opt.Direction = "auto",
    width: opt.Width = None,
    theme: opt.ThemeName = "light",
    transparent: opt.Transparent = False,
    dpi: opt.Dpi = None,
    title: opt.Title = None,
    legend: opt.Legend = True,
    shapes: opt.Shapes = True,
    font: opt.Font = None,
    text_as_paths: opt.TextAsPaths = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
) -> int:
    """Tell what changed between two models: stages added, removed and changed, and the wiring."""
    from neural_flow.cli.diffing import run_diff

    return run_diff(context.params)


@app.command()
def check(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(metavar="[TARGET]", show_default=False, help="As for render; all figures without it."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="GRAPH.json", help="The stored graph; it says what was asked.")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Write the graph anew where it has changed.")] = False,
    finite: Annotated[bool, typer.Option("--finite", help="Run the model and fail on NaN or Inf.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Answer as JSON.")] = False,
    jobs: opt.Jobs = 1,
    arguments: opt.Arguments = None,
    weights: opt.Weights = None,
    unsafe_load: opt.UnsafeLoad = False,
    allow_download: opt.AllowDownload = False,
    seed: opt.Seed = 0,
    device: opt.Device = None,
    train: opt.Train = False,
    autocast: opt.Autocast = False,
    inputs: opt.Inputs = None,
    inputs_function: opt.InputsFunction = None,
    detail: opt.Detail = "auto",
    depth: opt.Depth = None,
    select: opt.Select = None,
    exclude: opt.Exclude = None,
    types: opt.Types = None,
    max_stages: opt.MaxStages = 24,
    fold: opt.Fold = True,
    expand: opt.Expand = None,
    collapse: opt.Collapse = None,
    topology: opt.TopologySource = "auto",
    tracer: opt.Tracer = "auto",
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
) -> int:
    """Check that the architecture is the stored one. Without TARGET: every figure of pyproject.toml with a graph."""
    if target is None:
        from neural_flow.cli.building import run_check_all

        return run_check_all(context.params)
    from neural_flow.cli.checking import run_check

    return run_check(context.params)


@app.command()
def why(
    context: typer.Context,
    target: opt.Target,
    source: Annotated[str, typer.Argument(metavar="A", show_default=False, help="The stage where the edge starts")],
    sink: Annotated[str, typer.Argument(metavar="B", show_default=False, help="The stage where it ends")],
    json: Annotated[bool, typer.Option("--json", help="Answer as JSON.")] = False,
    arguments: opt.Arguments = None,
    weights: opt.Weights = None,
    unsafe_load: opt.UnsafeLoad = False,
    allow_download: opt.AllowDownload = False,
    seed: opt.Seed = 0,
    device: opt.Device = None,
    train: opt.Train = False,
    autocast: opt.Autocast = False,
    inputs: opt.Inputs = None,
    inputs_function: opt.InputsFunction = None,
    detail: opt.Detail = "auto",
    depth: opt.Depth = None,
    select: opt.Select = None,
    exclude: opt.Exclude = None,
    types: opt.Types = None,
    max_stages: opt.MaxStages = 24,
    expand: opt.Expand = None,
    collapse: opt.Collapse = None,
    topology: opt.TopologySource = "auto",
    tracer: opt.Tracer = "auto",
    fake: opt.Fake = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
) -> int:
    """Show the operations behind an edge, with the file and line of your code."""
    from neural_flow.cli.explaining import run_why

    return run_why(context.params)


@app.command()
def build(
    context: typer.Context,
    only: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only figures whose name fits; repeatable.")
    ] = None,
    jobs: opt.Jobs = 1,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 where a file would change.")
    ] = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
) -> int:
    """Make every figure listed in pyproject.toml, and rewrite the files whose model has changed."""
    from neural_flow.cli.building import run_build

    return run_build(context.params)


@app.command("list")
def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]",
            show_default=False,
            help="summaries, topologies, layouts, exporters, themes or samples; all without it.",
        ),
    ] = None,
) -> int:
    """List what can be named: summary kinds, edge sources, layouts, formats, themes, sample models."""
    from neural_flow.cli.listing import run_list

    return run_list(kind)
