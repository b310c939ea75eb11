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


@app.command("list")
def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[summaries|topologies|layouts|exporters|themes|samples]",
            show_default=False,
            help="One of them; all without it.",
        ),
    ] = None,
) -> int:
    """List what can be named: summary kinds, edge sources, layouts, formats, themes, sample models."""
    from neural_flow.cli.listing import run_list

    return run_list(kind)
