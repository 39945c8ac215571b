"""Pictures of loads (matplotlib)."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from dspark_json.errors import InvalidOptionError
from dspark_json.spool.os_errors import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dspark_json.cli.bench.serving.blocks import Block

# Dark enough on white, and told apart by those who see few colours.
_COLOURS: Final = ("#1f5fa8", "#d9730d", "#3a8a4d", "#8a4fa3")
_DPI: Final = 120


def draw_servers(path: Path, blocks: Mapping[str, Sequence[Block]], title: str) -> None:
    """Latencies, times to the first byte of JSON, and tokens a second of each block, a colour for each server."""
    figure = _figure(title, width=12.0, height=4.0)
    whole, first, speed = figure.subplots(1, 3)
    for (name, of_it), colour in zip(blocks.items(), _COLOURS, strict=False):
        answers = [answer for block in of_it for answer in block.answers]
        _share_curve(whole, [answer.latency for answer in answers], name, colour)
        _share_curve(first, [a.first_json for a in answers if a.first_json is not None], name, colour)
        rates = _tokens_per_second(of_it)
        speed.plot(range(1, len(rates) + 1), rates, "o-", color=colour, label=name)
    _name(whole, "whole answer", "ms", "share of answers")
    _name(first, "first byte of JSON", "ms", "share of answers")
    _name(speed, "speed by block", "block", "output tokens/s")
    for axes in (whole, first):
        axes.set_ylim(0, 1.02)
        axes.set_xlim(left=0)
    _from_zero(speed)
    speed.xaxis.get_major_locator().set_params(integer=True)
    if len(blocks) > 1:
        whole.legend(loc="lower right", frameon=False)
    _save(figure, path)


def draw_sweep(path: Path, results: Sequence[dict[str, Any]], title: str) -> None:
    """Speed, acceptance, latency and malformed answers over the speculation length."""
    _save(sweep_figure(results, title), path)


def sweep_figure(results: Sequence[dict[str, Any]], title: str) -> Figure:
    """The same, not yet written; what a length has no figure of is no point."""
    grammars = list(dict.fromkeys(result["grammar"] for result in results))
    figure = _figure(title, width=12.0, height=7.0)
    speed, accepted, latency, malformed = figure.subplots(2, 2).flat
    for grammar, colour in zip(grammars, _COLOURS, strict=False):
        of_it = [result for result in results if result["grammar"] == grammar]
        label = f"grammar {grammar}"
        lengths, rates = _points(of_it, lambda one: one["output_tokens_per_second"])
        _, spread = _points(of_it, lambda one: one["output_tokens_per_second_ci"] or _no_interval(one))
        below = [max(rate - low, 0) for rate, (low, _) in zip(rates, spread, strict=True)]
        above = [max(high - rate, 0) for rate, (_, high) in zip(rates, spread, strict=True)]
        speed.errorbar(lengths, rates, yerr=[below, above], fmt="o-", color=colour, capsize=3, label=label)
        lengths, shares = _points(of_it, lambda one: (one["acceptance"] or {}).get("rate"))
        accepted.plot(lengths, [100 * share for share in shares], "o-", color=colour, label=label)
        for quantile, line in (("p50", "o-"), ("p99", "o:")):
            lengths, times = _points(of_it, itemgetter(f"latency_ms_{quantile}"))
            latency.plot(lengths, times, line, color=colour, label=f"{label}, {quantile}")
        lengths, shares = _points(of_it, lambda one: one["malformed"])
        malformed.plot(lengths, [100 * share for share in shares], "o-", color=colour, label=label)
    _name(speed, "speed, with 95 % intervals over blocks", "speculation length", "output tokens/s")
    _name(accepted, "drafted tokens accepted", "speculation length", "%")
    _name(latency, "whole answer", "speculation length", "ms")
    _name(malformed, "malformed answers", "speculation length", "%")
    for axes in (speed, accepted, latency, malformed):
        _from_zero(axes)
        axes.set_xticks(sorted({result["length"] for result in results}))
    latency.legend(frameon=False)
    if len(grammars) > 1:
        speed.legend(frameon=False)
    return figure


def _points(results: Sequence[dict[str, Any]], figure: Callable[[dict[str, Any]], Any]) -> tuple[list[int], list[Any]]:
    """The lengths that have a figure, and it."""
    told = [(one["length"], value) for one in results if (value := figure(one)) is not None]
    return [length for length, _ in told], [value for _, value in told]


def _no_interval(result: dict[str, Any]) -> tuple[float, float] | None:
    rate = result["output_tokens_per_second"]
    return None if rate is None else (rate, rate)


def _figure(title: str, *, width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, fontsize="medium", parse_math=False)  # a model's name may have dollars
    return figure


def _share_curve(axes: Axes, seconds: Sequence[float], name: str, colour: str) -> None:
    """The share of all that took this long at most."""
    times = sorted(1000 * time for time in seconds)
    if times:
        shares = [(place + 1) / len(times) for place in range(len(times))]
        axes.step([times[0], *times], [0.0, *shares], where="post", color=colour, label=name)


def _tokens_per_second(blocks: Sequence[Block]) -> list[float]:
    from dspark_json.cli.bench.serving.figures import output_tokens_per_second

    return [rate if (rate := output_tokens_per_second(block)) is not None else float("nan") for block in blocks]


def _name(axes: Axes, title: str, across: str, up: str) -> None:
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(visible=True, alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _from_zero(axes: Axes) -> None:
    """Heights from 0 on, with some room above the highest."""
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])


def _save(figure: Figure, path: Path) -> None:
    try:
        figure.savefig(path, format="png", dpi=_DPI)
    except OSError as error:
        raise InvalidOptionError(f'--png "{path}" can\'t be written: {reason(error)}') from None
