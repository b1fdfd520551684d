"""Figures 2 to 14 of the paper from runs: learning curves, centres of heads, attention, factors.

Heads differ by colour (Okabe and Ito, readable by colour-blind people) and by number.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from conv2attn.errors import CheckpointError, UsageError
from conv2attn.extras import optional
from conv2attn.files import load
from conv2attn.files.input_images import read_picture, resize_to, with_channels
from conv2attn.lab.data import normalised_images, read_images_of
from conv2attn.lab.figures.ellipses import (
    FloatArray,
    attention_of_query,
    ellipse,
    mean_places,
    reading_order,
    snapshots,
)
from conv2attn.lab.figures.factors import factors_figure
from conv2attn.lab.training import network_digest
from conv2attn.lab.training.run_folder import TrainingRun
from conv2attn.networks import attention_layers
from conv2attn.plots import check_drawable, write
from conv2attn.suffixes import PICTURE_SUFFIXES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEAD_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D00", "#7F7F7F")
DASHES = ("-", "--", "-.", ":")
SHARES = {0.5: "-", 0.9: ":"}
INCH = 1.3
LARGE = 12.0
"""The semi-axis in pixels from which an ellipse is not drawn whole."""


def draw_figures(
    runs: Sequence[TrainingRun],
    folder: str | Path,
    *,
    suffix: str = ".png",
    average: int = 100,
    examples: int = 3,
    pictures: Sequence[str | Path] = (),
    query: tuple[int, int] | None = None,
    zoom: int | None = 7,
    force: bool = False,
) -> list[Path]:
    """Draws into `folder` the figures for which the runs have data.

    Args:
        runs: the learning curves show all of them; the heads of each have figures of their own, whose names begin with
            that of its folder where there are several.
        suffix: of the files: .png, .svg or .pdf.
        average: test images over which attention is averaged.
        examples: test images for which attention is shown by itself.
        pictures: files of images for which it is shown too, in figures of their names; brought to the size of the data.
        query: row and column of the token that asks; by default the one in the middle.
        zoom: tokens around the query that averaged attention shows, all if None.
        force: overwrite files.
    Returns:
        The files.
    Raises:
        UsageError: no runs, an unknown suffix, or no matplotlib (C2A308).
        CheckpointError: see `TrainingRun.metrics`.
    """
    folder = Path(folder)
    if not runs or suffix not in PICTURE_SUFFIXES:
        raise UsageError(
            "C2A308",
            f"figures takes runs and one of {', '.join(PICTURE_SUFFIXES)}, not {suffix!r}",
            "Pass one of these suffixes.",
        )
    check_drawable(folder / f"figure{suffix}")
    figures = {"accuracy": accuracy_figure(runs)}
    names = [run.folder.resolve().name for run in runs]
    for place, (run, name) in enumerate(zip(runs, names, strict=True)):
        prefix = "" if len(runs) == 1 else f"{name}-" if names.count(name) == 1 else f"{name}-{place + 1}-"
        drawn = figures_of_heads(run) | figures_of_attention(run, average, examples, pictures, query, zoom)
        figures |= {f"{prefix}{figure}": panel for figure, panel in drawn.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            "C2A301", f"{folder} cannot be made: {error.strerror}", "Choose another folder with --output."
        ) from error
    paths = [folder / f"{name}{suffix}" for name in figures]
    for path, figure in zip(paths, figures.values(), strict=True):
        write(figure, path, force)
    return paths


def figures_of_attention(
    run: TrainingRun,
    average: int,
    examples: int,
    pictures: Sequence[str | Path],
    query: tuple[int, int] | None,
    zoom: int | None,
) -> dict[str, "Figure"]:
    """The attention of every head of a run, averaged over test images, on single ones and on pictures.

    None of lines of symbols, which are no pictures.
    """
    network = load(run.network)
    images = read_images_of(run.recipe.data)
    if not attention_layers(network) or len(images.shape) < 3:
        return {}
    shown = [pixels_of(Path(picture), images.shape) for picture in pictures]
    pixels = torch.cat([images.test_pixels[: max(average, examples)], *shown])
    inputs = normalised_images(pixels, *images.statistics())
    attention = attention_of_query(network, inputs.to(next(network.parameters()).dtype), query)
    mean = {name: each[:average].mean(0) for name, each in attention.items()}
    layer = [*mean][min(3, len(mean) - 1)]  # as `figures_of_heads`
    rows, columns = mean[layer].shape[1:]
    factors = factors_figure(attention_layers(network)[layer], mean[layer], query or (rows // 2, columns // 2))
    figures = {"attention": attention_figure(mean, query, zoom), "factors": factors}
    named = {f"attention-image-{example + 1}": example for example in range(examples)}
    named |= {f"attention-{Path(picture).stem}": place - len(pictures) for place, picture in enumerate(pictures)}
    for name, example in named.items():
        alone = {layer: each[example] for layer, each in attention.items()}
        figures[name] = attention_figure(alone, query, None, inputs[example])
    return figures


def pixels_of(picture: Path, shape: tuple[int, ...]) -> Tensor:
    """The pixels of a PNG or JPEG file, resized to (1, *shape).

    Raises:
        CheckpointError, UsageError: as `read_picture`.
    """
    pixels = with_channels(read_picture(picture).float(), shape[0], str(picture))
    return resize_to(pixels, shape[1:])[None]


def accuracy_figure(runs: Sequence[TrainingRun]) -> "Figure":
    """Test accuracy over the epochs (Figs. 2 and 13); a run that starts from a file of another goes on at its end."""
    figure: Figure = optional("matplotlib.figure").Figure(figsize=(4.5, 3), layout="constrained")
    panel = figure.subplots()
    for place, run in enumerate(runs):
        rows = run.metrics()
        before = epochs_before(run, runs)
        epochs = [before + row["epoch"] for row in rows]
        draw_curve(panel, place, run.folder.name, epochs, [row["test_accuracy"] for row in rows])
    panel.set(xlabel="Epoch", ylabel="Test accuracy")
    panel.xaxis.set_major_locator(optional("matplotlib.ticker").MaxNLocator(integer=True))
    panel.grid(alpha=0.3)
    panel.legend(fontsize=7)
    return figure


def epochs_before(run: TrainingRun, runs: Sequence[TrainingRun]) -> float:
    """The epochs of the run that this one starts from a file of, such as the pruned network; 0 where it starts anew."""
    parent = run.recipe.parent
    others = (each for each in runs if parent is not None and each is not run and each.network.is_file())
    first = next((each for each in others if network_digest(load(each.network)) == parent), None)
    return 0.0 if first is None else epochs_before(first, runs) + first.metrics()[-1]["epoch"]


def figures_of_heads(run: TrainingRun) -> dict[str, "Figure"]:
    """Centres over training (Fig. 3) and of all layers at the end (Figs. 4, 12, 14), where heads have centres."""
    positions = run.positions()
    names = [key.removesuffix(":center") for key in positions if key.endswith(":center")]
    if not names or positions[f"{names[0]}:center"].shape[2] != 2:
        return {}
    heads = {name: (positions[f"{name}:center"], positions[f"{name}:precision"]) for name in names}
    shown_layer = names[min(3, len(names) - 1)]  # the fourth, as in the paper, or the last of fewer
    centers, precisions = heads[shown_layer]
    last = reading_order(centers[-1])
    over_time = [
        (f"epoch {epoch}", centers[epoch], precisions[epoch], last) for epoch in snapshots(len(centers) - 1, 6)
    ]
    at_end = [(f"layer {place + 1}", c[-1], p[-1], reading_order(c[-1])) for place, (c, p) in enumerate(heads.values())]
    title = f"Layer {names.index(shown_layer) + 1} during training"
    return {
        "centers-over-training": centers_figure(over_time, title),
        "centers": centers_figure(at_end, "All layers after training"),
    }


def centers_figure(panels: Sequence[tuple[str, FloatArray, FloatArray, list[int]]], title: str) -> "Figure":
    """A panel for each (title, centres, precision matrices, order of heads), three in a row, all to one scale."""
    columns = min(3, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure: Figure = optional("matplotlib.figure").Figure(figsize=(2 * columns, 2.1 * lines), layout="constrained")
    figure.suptitle(f"{title}\nsquare: the query; ellipses hold 50 % (solid) and 90 % (dotted) of a head", fontsize=7)
    figure.supxlabel("columns from the query", fontsize=7)
    figure.supylabel("rows from the query", fontsize=7)
    reach = max(3.0, *(panel_reach(c, p) for _, c, p, _ in panels))
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel, (name, centers, precisions, order) in zip(axes, panels, strict=False):
        draw_centers(panel, centers, precisions, order, reach, name)
    for panel in axes[len(panels) :]:
        panel.remove()
    return figure


def panel_reach(centers: FloatArray, precisions: FloatArray) -> float:
    """The distance from the query within which the ellipses of nine heads in ten are whole.

    Ellipses of more than `LARGE` pixels, of heads that attend to everything, are cut.
    """
    ends = []
    for center, precision in zip(centers, precisions, strict=True):
        long = ellipse(precision, max(SHARES)).semi_axes[0]
        ends.append(float(np.abs(center).max()) + (long if long <= LARGE else 0.0))
    return float(np.quantile(ends, 0.9, method="higher")) + 0.2


def attention_figure(
    attention: Mapping[str, FloatArray], query: tuple[int, int] | None, zoom: int | None, image: Tensor | None = None
) -> "Figure":
    """One row per layer and one column per head, in reading order; in front of them the image, if one is given."""
    most, front = max(map(len, attention.values())), int(image is not None)
    size = (INCH * (most + front), INCH * len(attention))
    figure: Figure = optional("matplotlib.figure").Figure(figsize=size, layout="constrained")
    figure.suptitle(
        "Attention of each head, white for none, black for the most in its panel; frame: the query", fontsize=8
    )
    panels = figure.subplots(len(attention), most + front, squeeze=False)
    for place, (line, heads) in enumerate(zip(panels, attention.values(), strict=True)):
        rows, columns = heads.shape[1:]
        query_token = query or (rows // 2, columns // 2)
        order = reading_order(mean_places(heads, query_token))
        for number, panel in enumerate(line[front:]):
            if number < len(order):
                head = heads[order[number]]
                draw_attention(panel, head, query_token, zoom, f"max {head.max():.2f}")
            else:
                panel.remove()
        line[front].set_ylabel(f"layer {place + 1}", fontsize=7)
        if image is not None:
            show_image(line[0], image, query_token, (rows, columns)) if place == 0 else line[0].remove()
    return figure


def show_image(panel: "Axes", image: Tensor, query: tuple[int, int], tokens: tuple[int, int]) -> None:
    """An image as the network takes it, stretched to the range that can be shown; a frame around the query's patch."""
    low, high = image.min(), image.max()
    stretched = ((image - low) / (high - low).clamp(min=1e-12)).movedim(0, -1).float().numpy()
    panel.imshow(stretched[..., 0] if stretched.shape[-1] == 1 else stretched[..., :3], cmap="gray")
    tall, wide = (side / count for side, count in zip(image.shape[1:], tokens, strict=True))
    corner = (query[1] * wide - 0.5, query[0] * tall - 0.5)
    panel.add_patch(optional("matplotlib.patches").Rectangle(corner, wide, tall, fill=False, ec="#D55E00", lw=1))
    panel.set(xticks=[], yticks=[])
    panel.set_title("image", fontsize=5, pad=2)


def draw_curve(panel: "Axes", place: int, name: str, epochs: Sequence[float], accuracy: Sequence[float]) -> None:
    """A learning curve, by colour and by dashes."""
    style = (
        DASHES[place // len(HEAD_COLOURS) % len(DASHES)] if place >= len(HEAD_COLOURS) else DASHES[place % len(DASHES)]
    )
    panel.plot(epochs, accuracy, style, color=HEAD_COLOURS[place % len(HEAD_COLOURS)], lw=1.3, label=name)


def draw_centers(
    panel: "Axes", centers: FloatArray, precisions: FloatArray, order: Sequence[int], reach: float, title: str
) -> None:
    """Centres of attention around the query, a grey square, with the ellipses of 50 % (solid) and 90 % (dotted).

    Heads are numbered and coloured by their place in `order`. Centres beyond `reach` pixels are not shown; the title
    says how many there are.
    """
    for place, head in enumerate(order):
        colour = HEAD_COLOURS[place % len(HEAD_COLOURS)]
        row, column = centers[head]
        for share, style in SHARES.items():
            shape = ellipse(precisions[head], share)
            long, short = shape.semi_axes
            panel.add_patch(
                optional("matplotlib.patches").Ellipse(
                    (column, row), 2 * long, 2 * short, angle=shape.angle, fill=False, ls=style, ec=colour, lw=1
                )
            )
        panel.plot(column, row, ".", color=colour, markersize=3)
        panel.annotate(str(place + 1), (column, row), (2, 2), textcoords="offset points", fontsize=7, color=colour)
    outside = int((np.abs(centers).max(1) > reach).sum())
    panel.add_patch(optional("matplotlib.patches").Rectangle((-0.5, -0.5), 1, 1, color="0.8", lw=0, zorder=0))
    panel.set(xlim=(-reach, reach), ylim=(reach, -reach), aspect="equal")
    panel.tick_params(labelsize=5, length=2)
    panel.set_title(f"{title} ({outside} beyond)" if outside else title, fontsize=7)


def draw_attention(panel: "Axes", attention: FloatArray, query: tuple[int, int], zoom: int | None, title: str) -> None:
    """Attention of one head: white for none, black for the most in the panel; the query has a frame."""
    rows, columns = attention.shape
    panel.imshow(attention, cmap="Greys", vmin=0, vmax=attention.max(), interpolation="nearest")
    panel.add_patch(
        optional("matplotlib.patches").Rectangle((query[1] - 0.5, query[0] - 0.5), 1, 1, fill=False, ec="#D55E00", lw=1)
    )
    reach = max(rows, columns) if zoom is None else zoom / 2
    box = [max(-0.5, query[0] - reach), min(rows - 0.5, query[0] + reach)]
    sides = [max(-0.5, query[1] - reach), min(columns - 0.5, query[1] + reach)]
    panel.set(xlim=sides, ylim=box[::-1], xticks=[], yticks=[])
    panel.set_title(title, fontsize=5, pad=2)
