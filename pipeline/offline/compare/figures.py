"""Figures as SVG text, without a plotting library: curves, and the critical-difference diagram."""

from collections.abc import Sequence
from html import escape

from pipeline.offline.compare.stats import Ranking

COLOURS = (
    "#d62728", "#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f",
    "#bcbd22", "#17becf",
)  # fmt: skip
WIDTH, HEIGHT = 860, 420
LEFT, TOP, RIGHT, BOTTOM = 56, 34, 160, 40


def curves(
    title: str,
    lines: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    shaded: tuple[float, float] | None = None,
) -> str:
    """Named lines through (step, accuracy); `shaded` marks a span of steps: the blind zone."""
    points = [point for _, line in lines for point in line]
    x_max = max(x for x, _ in points)
    y_min, y_max = min(y for _, y in points), max(y for _, y in points)
    y_min, y_max = max(0.0, y_min - 0.02), min(1.0, y_max + 0.02)

    def across(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * x / x_max

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - y_min) / max(1e-9, y_max - y_min)

    parts = [_text(LEFT, 20, title, size=14)]
    if shaded is not None:
        first, last = across(shaded[0]), across(shaded[1])
        parts.append(
            f'<rect x="{first:.1f}" y="{TOP}" width="{last - first:.1f}" '
            f'height="{HEIGHT - TOP - BOTTOM}" fill="#f4c7c3" opacity="0.6"/>'
        )
    for tick in range(6):
        y = y_min + (y_max - y_min) * tick / 5
        parts.append(_line(LEFT, up(y), WIDTH - RIGHT, up(y), "#dddddd"))
        parts.append(_text(LEFT - 6, up(y) + 4, f"{y:.2f}", anchor="end"))
        x = x_max * tick / 5
        parts.append(_text(across(x), HEIGHT - BOTTOM + 18, f"{x:.0f}", anchor="middle"))
    for place, (name, line) in enumerate(lines):
        colour = COLOURS[place % len(COLOURS)]
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line)
        thick = 2.4 if place == 0 else 1.3
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{thick}"/>'
        )
        level = TOP + 10 + 18 * place
        parts.append(_line(WIDTH - RIGHT + 10, level, WIDTH - RIGHT + 30, level, colour, thick))
        parts.append(_text(WIDTH - RIGHT + 36, level + 4, name))
    return _svg(parts, WIDTH, HEIGHT)


def critical_difference(title: str, ranking: Ranking, titles: dict[str, str]) -> str:
    """Methods along an axis of mean ranks; a bar joins those that cannot be told apart."""
    order = sorted(ranking.ranks, key=lambda name: ranking.ranks[name])
    worst = max(2.0, float(len(order)))
    left, right, axis = 180, WIDTH - 180, 70

    def across(value: float) -> float:
        return left + (right - left) * (value - 1.0) / (worst - 1.0)

    parts = [_text(left, 20, f"{title}: Friedman p = {ranking.p:.2g}, "
                   f"critical difference {ranking.distance:.2f}", size=14)]  # fmt: skip
    parts.append(_line(left, axis, right, axis, "#000000"))
    for value in range(1, len(order) + 1):
        parts.append(_line(across(value), axis - 5, across(value), axis, "#000000"))
        parts.append(_text(across(value), axis - 9, str(value), anchor="middle"))
    parts.append(_line(across(1.0), 36, across(min(worst, 1.0 + ranking.distance)), 36, "#000", 3))
    cliques = _cliques([ranking.ranks[name] for name in order], ranking.distance)
    for place, (first, last) in enumerate(cliques):
        level = axis + 10 + 7 * place
        ends = across(first) - 4, across(last) + 4
        parts.append(_line(ends[0], level, ends[1], level, "#000000", 3))
    below = axis + 24 + 7 * len(cliques)
    half = (len(order) + 1) // 2
    for place, name in enumerate(order):
        on_left = place < half
        level = below + 20 * (place if on_left else len(order) - 1 - place)
        x, end = across(ranking.ranks[name]), left - 8 if on_left else right + 8
        parts.append(_line(x, axis, x, level, "#555555"))
        parts.append(_line(x, level, end, level, "#555555"))
        text = f"{titles.get(name, name)} {ranking.ranks[name]:.2f}"
        offset = -4 if on_left else 4
        parts.append(_text(end + offset, level + 4, text, anchor="end" if on_left else "start"))
    return _svg(parts, WIDTH, below + 20 * half + 10)


def _cliques(ranks: Sequence[float], distance: float) -> list[tuple[float, float]]:
    """The longest spans of neighbouring ranks no wider than the distance."""
    spans: list[tuple[float, float]] = []
    for place, first in enumerate(ranks):
        last = max(value for value in ranks[place:] if value - first <= distance)
        if last > first and (not spans or last > spans[-1][1]):
            spans.append((first, last))
    return spans


def _svg(parts: Sequence[str], width: float, height: float) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, thick: float = 1.0) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" stroke-width="{thick}"/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {place}>{escape(text)}</text>"
