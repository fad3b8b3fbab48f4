"""A tally -> Markdown: the tables of the benchmark, each with a line on how to read it."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from pipeline.bench import paper
from pipeline.bench.methods import Group, Method
from pipeline.bench.tally import Tally

TITLES = {"cer": "CER, less is better", "auc": "AUC, more is better"}


class Report:
    """The tables of one benchmark, for the methods that were run."""

    def __init__(self, tally: Tally, methods: Sequence[Method]) -> None:
        self._tally = tally
        self._methods = list(methods)

    def text(self, heading: Sequence[str]) -> str:
        """All tables under a heading."""
        sections = [
            *heading,
            *self._compare("The paper's seven methods", self._names("paper"), "table"),
            *self._compare(
                "Against naive and the controls", self._names("naive", "control"), "ours"
            ),
            *self._compare("Ablations", self._names("ablation"), "ours"),
            *self._compare("Against the peers", self._names("peer"), "ours"),
            *self._conditions(),
            *self._blind_zone(),
            *self._times(),
            *self._beside_the_paper(),
        ]
        return "\n".join(sections) + "\n"

    def _names(self, *groups: Group) -> list[str]:
        return [method.name for method in self._methods if method.group in groups]

    def _title(self, name: str) -> str:
        return next(method.marked for method in self._methods if method.name == name)

    def _compare(self, title: str, names: list[str], kind: str) -> list[str]:
        """CER and AUC of some methods by stream, beside DT-GOL's."""
        if kind == "ours" and "dt-gol" in self._names("paper"):
            names = ["dt-gol", *names]
        if len(names) < 2:
            return []
        lines = [f"## {title}", ""]
        for metric, label in TITLES.items():
            lines += [f"{label}. Mean over delays and masks, ± deviation over seeds.", ""]
            lines += self._streams(names, metric)
        return lines

    def _streams(self, names: list[str], metric: str) -> list[str]:
        tally = self._tally
        rows = []
        for stream in tally.streams:
            cells = [tally.on(stream, name, metric) for name in names]
            best = _best([cell.mean for cell in cells], metric)
            shown = [f"**{cell}**" if i in best else str(cell) for i, cell in enumerate(cells)]
            half = tally.half(stream)
            rows.append([f"{stream} ({half})" if half else stream, *shown])
        rows += self._rank_rows(names, metric)
        lines = table(["stream", *map(self._title, names)], rows)
        ranking = tally.ranking(names, metric)
        lines += [
            "",
            f"Friedman over {ranking.streams} streams: p = {ranking.p:.2g}; mean ranks closer than "
            f"{ranking.distance:.2f} (Nemenyi, α = 0.05) cannot be told apart.",
            "",
        ]
        return lines

    def _rank_rows(self, names: list[str], metric: str) -> list[list[str]]:
        tally = self._tally
        parts = [("mean rank", metric, tally.streams)]
        for half, text in (("odd", "odd (chosen on)"), ("even", "even (reported on)")):
            streams = [stream for stream in tally.streams if tally.half(stream) == half]
            parts += [(text, metric, streams)] if streams else []
        if metric == "cer":
            parts.append(("mean rank from step L + 1 on", "late_cer", tally.streams))
        rows = []
        for label, by, streams in parts:
            ranks = tally.ranking(names, by, streams).ranks
            rows.append([label, *(f"{ranks[name]:.2f}" for name in names)])
        if "dt-gol" in names:
            wins, ps = ["DT-GOL wins–losses"], ["Wilcoxon p"]
            for name in names:
                won, lost = tally.wins("dt-gol", name, metric)
                wins.append("" if name == "dt-gol" else f"{won}–{lost}")
                p = tally.p_value("dt-gol", name, metric)
                ps.append("" if name == "dt-gol" else f"{p:.2g}")
            rows += [wins, ps]
        return rows

    def _conditions(self) -> list[str]:
        """Mean CER by mask and delay over the streams that have both."""
        cells = sorted(
            {(job.missing, job.delay) for job in self._tally.outcomes if not job.source.change}
        )
        if not cells:
            return []
        rows = []
        for method in self._methods:
            row = [method.marked]
            for missing, delay in cells:
                values = [
                    outcome.cer
                    for job, outcome in self._tally.outcomes.items()
                    if (job.method, job.missing, job.delay) == (method.name, missing, delay)
                    and outcome.cer is not None
                ]
                row.append(f"{np.mean(values):.4f}" if values else "–")
            rows.append(row)
        head = ["method", *(f"{missing}, L = {delay}" for missing, delay in cells)]
        return ["## By mask and delay", "", "Mean CER over the sets.", "", *table(head, rows), ""]

    def _blind_zone(self) -> list[str]:
        streams = [s for s in self._tally.streams if self._zones(s, self._methods[0].name)]
        if not streams:
            return []
        lines = [
            "## Blind zone",
            "",
            "Accuracy inside / largest drop / steps until back (mean over seeds; > where some seed "
            "never came back and counts with the rest of the stream).",
            "",
        ]
        rows = []
        for method in self._methods:
            cells = [self._zone(stream, method.name) for stream in streams]
            rows.append([method.marked, *cells])
        return [*lines, *table(["method", *streams], rows), ""]

    def _zones(self, stream: str, method: str) -> list[tuple[float, float, int | None, int]]:
        return [
            (zone.accuracy, zone.drop, zone.recovery, job.source.rows - job.source.change)
            for job, outcome in self._tally.runs(stream, method)
            if (zone := outcome.blind) is not None
        ]

    def _zone(self, stream: str, method: str) -> str:
        zones = self._zones(stream, method)
        if not zones:
            return "–"
        accuracy, drop = np.mean([z[0] for z in zones]), np.mean([z[1] for z in zones])
        back = np.mean([z[3] if z[2] is None else z[2] for z in zones])
        never = ">" if any(z[2] is None for z in zones) else ""
        return f"{accuracy:.3f} / {drop:.3f} / {never}{back:.0f}"

    def _times(self) -> list[str]:
        rows = []
        for method in self._methods:
            median, slowest = self._tally.us_per_record(method.name)
            rows.append([method.marked, f"{median:.0f}", f"{slowest:.0f}"])
        head = ["method", "µs per record (median)", "slowest stream"]
        how = "Processor time of one `observe` and one `learn`, loop included."
        return ["## Time per record", "", how, "", *table(head, rows), ""]

    def _beside_the_paper(self) -> list[str]:
        names = [name for name in paper.METHODS if name in self._names("paper")]
        streams = [stream for stream in self._tally.streams if stream in paper.CER]
        if not names or not streams:
            return []
        lines = [
            "## Beside the paper's own figures",
            "",
            "Ours / theirs. The paper states neither delays nor masks nor row order.",
            "",
        ]
        for metric, theirs in (("cer", paper.CER), ("auc", paper.AUC)):
            rows = []
            for stream in streams:
                cells = []
                for name in names:
                    quoted = theirs[stream][paper.METHODS.index(name)]
                    cells.append(f"{self._tally.on(stream, name, metric).mean:.3f} / {quoted:.3f}")
                rows.append([stream, *cells])
            head = [metric.upper(), *map(self._title, names)]
            lines += [*table(head, rows), ""]
        return lines


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def _best(values: Sequence[float], metric: str) -> set[int]:
    """The places of the best value, as it is printed."""
    known = [round(value, 3) for value in values if not math.isnan(value)]
    if not known:
        return set()
    choose: Callable[[list[float]], float] = max if metric == "auc" else min
    return {i for i, value in enumerate(values) if round(value, 3) == choose(known)}
