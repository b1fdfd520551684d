"""Figures 2 to 14 of the paper from runs: learning curves, centres of heads, attention, factors.

Heads differ by colour (Okabe and Ito, readable by colour-blind people) and by number. Fig. 11 shows what one query
computes, as weights times attention. For `D_in D_out = 2`, two heads and three keys, `V_SA` (2 x 3) is `W_SA` (2 x 2)
times `A_q` (2 x 3); the nearest convolution is `W_conv` times `E_q`, whose rows are one-hot at the query's neighbours.
Lemma 3: a span that holds the rows of `E_q` is enough, and necessary.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from conv2attn.errors import CheckpointError, UsageError
from conv2attn.extras import optional
from conv2attn.files import load
from conv2attn.files.input_images import read_picture, resize_to, with_channels
from conv2attn.lab.data import normalised_images, read_images_of
from conv2attn.lab.training import network_digest
from conv2attn.lab.training.run_folder import TrainingRun
from conv2attn.layers.theorem import as_basis
from conv2attn.networks.layers import attention_layers, layer_inputs
from conv2attn.plots import write
from conv2attn.suffixes import PICTURE_SUFFIXES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]

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
    optional("matplotlib", "a picture")
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


LONGEST_AXIS = 1e4
"""Semi-axes are cut here, in pixels, so that heads that attend to everything can be drawn."""


@final
@dataclass(frozen=True)
class HeadEllipse:
    """The region that holds a share of a Gaussian head.

    Args:
        semi_axes: in pixels, the longer one first.
        angle: of the longer axis in degrees, from the axis of columns towards the axis of rows.
    """

    semi_axes: tuple[float, float]
    angle: float


def ellipse(precision: FloatArray, share: float) -> HeadEllipse:
    """Where the density proportional to `exp(-1/2 d^T precision d)`, `d` from the centre, has `share` of its mass.

    In the plane this is `d^T precision d <= -2 ln(1 - share)`: for a quadratic head, whose precision is `2 alpha`
    times the identity, a circle of squared radius `-ln(1 - share) / alpha`.
    """
    values, vectors = np.linalg.eigh((precision + precision.T) / 2)
    reach = -2 * math.log1p(-share)
    long, short = (min(LONGEST_AXIS, math.sqrt(reach / value)) if value > 0 else LONGEST_AXIS for value in values)
    down, right = vectors[:, 0]
    angle = math.degrees(math.atan2(down, right)) % 180
    return HeadEllipse((long, short), angle)


def reading_order(places: FloatArray) -> list[int]:
    """The heads in the order in which a square of their places is read: rows from the top, each from the left.

    Args:
        places: (heads, 2), the row and column that each head attends to.
    """
    heads = len(places)
    width = math.ceil(math.sqrt(heads))
    by_row = sorted(range(heads), key=lambda head: places[head][0])
    rows = [by_row[start : start + width] for start in range(0, heads, width)]
    return [head for row in rows for head in sorted(row, key=lambda head: places[head][1])]


def mean_places(attention: FloatArray, query: tuple[int, int]) -> FloatArray:
    """The mean displacement of each head, (heads, 2), for attention (heads, rows, columns) that sums to 1."""
    rows, columns = (np.arange(side) - place for side, place in zip(attention.shape[1:], query, strict=True))
    return np.stack([attention.sum(2) @ rows, attention.sum(1) @ columns], 1)


@torch.no_grad()
def attention_of_query(network: nn.Module, images: Tensor, query: tuple[int, int] | None) -> dict[str, FloatArray]:
    """The attention of one query in every layer: (images, heads, rows, columns) by layer.

    Args:
        images: as the network takes them.
        query: row and column of the token that asks; by default the one in the middle.
    Raises:
        UsageError: there is no such token (C2A002).
    """
    layers, inputs = attention_layers(network), layer_inputs(network, lambda: network.eval()(images))
    return {name: attention_rows_of(layers[name], image, query) for name, image in inputs.items()}


def attention_rows_of(layer: nn.Module, image: Tensor, query: tuple[int, int] | None) -> FloatArray:
    """The attention of one query of a layer: (images, heads, rows, columns)."""
    rows, columns = image.shape[2:]
    row, column = query or (rows // 2, columns // 2)
    if not (0 <= row < rows and 0 <= column < columns):
        raise UsageError(
            "C2A002", f"query {row},{column} is none of {rows}x{columns} tokens", "Pass a --query on the grid."
        )
    query_index, attention_rows = row * columns + column, []
    for single_image in image.split(1):
        for queries, attention in layer.attention_chunks(single_image):  # type: ignore[operator]
            if queries.start <= query_index < queries.stop:
                attention_rows.append(attention[:, :, query_index - queries.start])
    return torch.cat(attention_rows).unflatten(-1, (rows, columns)).cpu().double().numpy()


def snapshots(epochs: int, count: int) -> list[int]:
    """Epochs to show, the first and the last among them, evenly spread.

    >>> snapshots(300, 4), snapshots(2, 6)
    ([0, 100, 200, 300], [0, 1, 2])
    """
    return sorted({round(epochs * part / max(1, count - 1)) for part in range(count)})


ROWS = 24
"""So many rows of the vectorised weights are drawn; a layer of width 64 has 4,096."""


@final
@dataclass(frozen=True, eq=False)
class Factors:
    """A layer's map at one query as a product: weights (d_in d_out, heads) times rows of attention (heads, keys)."""

    weights: FloatArray
    rows: FloatArray

    @property
    def product(self) -> FloatArray:
        """V_q of Appendix C, (d_in d_out, keys)."""
        return self.weights @ self.rows


def factors_of_layer(layer: nn.Module, attention: FloatArray) -> Factors:
    """W_SA and A_q of a layer, for the attention (heads, rows, columns) of the query."""
    matrices = as_basis(layer).weights.dense().detach().double().cpu().numpy()  # (heads, d_out, d_in)
    return Factors(matrices.reshape(len(matrices), -1).T, attention.reshape(len(attention), -1))


def nearest_convolution(factors: Factors, sides: tuple[int, ...], query: tuple[int, int], kernel: int) -> Factors:
    """W_conv and E_q of the kernel x kernel convolution that is nearest to a layer at this query.

    Rows of E_q are orthonormal, so its weights are the columns of the layer's V at the query's neighbours.
    """
    around = [(query[0] + a, query[1] + b) for a in span(kernel) for b in span(kernel)]
    inside = [a * sides[1] + b for a, b in around if 0 <= a < sides[0] and 0 <= b < sides[1]]
    rows = np.eye(math.prod(sides))[inside]
    return Factors(factors.product @ rows.T, rows)


def span(kernel: int) -> range:
    """The offsets of one axis of a kernel, as `Convolution.offsets` has them."""
    return range(-((kernel - 1) // 2), kernel - (kernel - 1) // 2)


def factors_figure(layer: nn.Module, attention: FloatArray, query: tuple[int, int]) -> "Figure":
    """The factors of the nearest convolution with as many taps as heads, or fewer, above those of the layer."""
    ours = factors_of_layer(layer, attention)
    kernel = max(1, math.isqrt(len(attention)))
    conv = nearest_convolution(ours, attention.shape[1:], query, kernel)
    figure: Figure = optional("matplotlib.figure").Figure(figsize=(8, 4), layout="constrained")
    figure.suptitle(
        f"the nearest {kernel}x{kernel} convolution, and the layer, at token {query[0]},{query[1]}", fontsize=8
    )
    largest = float(np.abs(ours.product).max()) or 1.0
    names = (("V_conv", "W_conv", "E_q"), ("V_SA", "W_SA", "A_q"))
    for line, factors, titles in zip(figure.subplots(2, 3), (conv, ours), names, strict=True):
        for panel, array, title in zip(line, (factors.product, factors.weights, factors.rows), titles, strict=True):
            scale = largest if title.startswith("V") else float(np.abs(array).max()) or 1.0
            panel.imshow(array[:ROWS], cmap="RdBu", vmin=-scale, vmax=scale, aspect="auto", interpolation="nearest")
            shown = f" (first {ROWS} of {len(array)} rows)" if len(array) > ROWS else ""
            panel.set_title(f"{title} {array.shape[0]}x{array.shape[1]}{shown}", fontsize=7)
            panel.set(xticks=[], yticks=[])
    return figure
