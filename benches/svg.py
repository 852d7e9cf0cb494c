"""Charts as plain SVG text: lines, and dots by name. No dependencies; readable on light and on dark ground."""
import math
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 330, 270
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 34, 44
STYLE = """
  text { font: 11px system-ui, sans-serif; fill: #333 } .title { font-size: 13px; font-weight: 600 }
  .grid { stroke: #ccc; stroke-width: 1 } .line { fill: none; stroke-width: 2 } .mean { stroke-width: 2 }
  @media (prefers-color-scheme: dark) { text { fill: #ddd } .grid { stroke: #555 } }
"""
# Of middle brightness, apart for the colour-blind too.
COLOURS = ["#3b7dd8", "#d9822b", "#2a9d6f", "#b5529e", "#8a8a8a", "#c9413b"]


@dataclass
class Line:
    """A named line; its colour is that of its place unless given."""

    name: str
    points: list[tuple[float, float]]
    colour: int | None = None


@dataclass
class Lines:
    """Lines over numbers."""

    title: str
    x: str
    y: str
    lines: list[Line]

    @property
    def width(self) -> float:
        """With the names at its right."""
        return WIDTH + 14 + 6.2 * max(len(line.name) for line in self.lines)

    def draw(self) -> list[str]:
        points = [point for line in self.lines for point in line.points]
        xs, ys = Scale([x for x, _ in points], LEFT, WIDTH - RIGHT), Scale([y for _, y in points], HEIGHT - BOTTOM, TOP)
        parts = [*grid(ys), *(label(xs(t), HEIGHT - BOTTOM + 14, number(t), "middle") for t in xs.ticks())]
        parts.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, self.x, "middle"))
        for i, line in enumerate(self.lines):
            colour = COLOURS[(i if line.colour is None else line.colour) % len(COLOURS)]
            path = " ".join(f"{xs(x):.1f},{ys(y):.1f}" for x, y in line.points)
            parts.append(f'<polyline class="line" stroke="{colour}" points="{path}"/>')
            if len(line.points) < 12:
                parts += [f'<circle cx="{xs(x):.1f}" cy="{ys(y):.1f}" r="2.5" fill="{colour}"/>' for x, y in line.points]
            y = TOP + 9 + 15 * i
            parts.append(f'<rect x="{WIDTH - RIGHT + 6}" y="{y - 8}" width="9" height="9" fill="{colour}"/>')
            parts.append(label(WIDTH - RIGHT + 20, y, line.name, "start"))
        return parts


@dataclass
class Dots:
    """For each name a dot for every seed, and a bar at their mean."""

    title: str
    y: str
    values: list[tuple[str, list[float]]]
    width: float = WIDTH

    def draw(self) -> list[str]:
        ys = Scale([y for _, values in self.values for y in values], HEIGHT - BOTTOM, TOP)
        parts, room = [*grid(ys)], (WIDTH - LEFT - RIGHT) / len(self.values)
        for i, (name, values) in enumerate(self.values):
            x, colour, mean = LEFT + room * (i + 0.5), COLOURS[i % len(COLOURS)], ys(sum(values) / len(values))
            parts.append(f'<line class="mean" stroke="{colour}" x1="{x - 12:.1f}" x2="{x + 12:.1f}" y1="{mean:.1f}" y2="{mean:.1f}"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{ys(y):.1f}" r="3" fill="{colour}" fill-opacity=".7"/>' for y in values]
            for row, words in enumerate(wrapped(name, room)):
                parts.append(label(x, HEIGHT - BOTTOM + 13 + 11 * row, words, "middle"))
        return parts


class Scale:
    """From numbers to a picture's points, round numbers at the ends."""

    def __init__(self, values: list[float], start: float, end: float):
        low, high = min(values), max(values)
        room = (high - low) or abs(high) or 1.0
        rough = room / 4
        power = 10 ** math.floor(math.log10(rough))
        self.step = min((m * power for m in (1, 2, 2.5, 5, 10)), key=lambda step: abs(step - rough))
        self.low, self.high = math.floor(low / self.step) * self.step, math.ceil(high / self.step) * self.step
        if self.low == self.high:
            self.high += self.step
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        return [self.low + i * self.step for i in range(round((self.high - self.low) / self.step) + 1)]


def grid(ys: Scale) -> list[str]:
    parts = []
    for tick in ys.ticks():
        y = ys(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(label(LEFT - 5, y + 4, number(tick), "end"))
    return parts


def number(value: float) -> str:
    return f"{round(value, 9):.4g}"


def label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def wrapped(text: str, room: float) -> list[str]:
    """Lines of a name that fit under a column, three at most."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) + 1 > room / 5.6:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines[:3]


def figure(panels: list) -> str:
    """Panels side by side."""
    total = math.ceil(sum(panel.width for panel in panels))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {HEIGHT}" width="{total}" height="{HEIGHT}" role="img">']
    parts += [f"<title>{escape('; '.join(panel.title for panel in panels))}</title>", f"<style>{STYLE}</style>"]
    at = 0.0
    for panel in panels:
        parts.append(f'<g transform="translate({at:.0f} 0)">')
        parts.append(f'<text class="title" x="{LEFT}" y="16">{escape(panel.title)}</text>')
        parts.append(label(LEFT, 29, panel.y, "start"))
        parts += [*panel.draw(), "</g>"]
        at += panel.width
    return "\n".join([*parts, "</svg>"]) + "\n"
