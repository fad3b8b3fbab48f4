"""A tally -> Markdown: the tables of the benchmark, each with a line on how to read it."""

from collections.abc import Sequence

import numpy as np

from pipeline.offline.compare import paper
from pipeline.offline.compare.families import (
    experts_alone,
    family_tables,
    moving_classes,
    us,
    with_the_same_runs,
    without_one_expert,
    worst_prefixes,
)
from pipeline.offline.compare.markdown import digits, in_bold, table
from pipeline.offline.compare.methods import Group, Method
from pipeline.offline.compare.tally import MEASURES, Comparison

TITLES = {"cer": "CER, less is better", "auc": "AUC, more is better"}
RIVALS = ("naive", "replay", "lach", "river-lr", "river-arf", "river-srp", "retrained")
"""Whom the summary compares DT-GOL with."""
LONG_DELAY = 2000


class BenchmarkPage:
    """The tables of one comparison, for the methods that were run.

    A table has the runs that all of its methods share (`Comparison.common`), and says how many
    seeds those are.
    """

    def __init__(self, tally: Comparison, methods: Sequence[Method]) -> None:
        self._tally = tally
        self._methods = list(methods)
        self._fifteen = tally.where(lambda job: job.family in ("sets", "drift"))

    def text(self, heading: Sequence[str]) -> str:
        """All tables under a heading; the summary first."""
        tally, methods = self._tally, self._methods
        sections = [
            *self._in_short(),
            *heading,
            *self._measures(),
            *self._compare("The paper's seven methods", self._names("paper"), "table"),
            *self._compare(
                "Against naive and the controls", self._names("naive", "control"), "ours"
            ),
            *self._compare("Against the peers", self._peers(slow=False), "ours"),
            *self._compare("Against the slow peers", self._peers(slow=True), "ours"),
            *moving_classes(tally, methods),
            *family_tables(tally, methods, "large", "The larger sets", ("cer", "auc", "log_loss")),
            *family_tables(tally, methods, "rare", "One positive in a hundred", tuple(MEASURES)),
            *experts_alone(tally),
            *without_one_expert(tally, methods),
            *self._compare("Parts of the paper's expert", self._parts(), "table"),
            *self._conditions(),
            *self._blind_zone(),
            *worst_prefixes(tally, methods),
            *self._times(),
            *self._beside_the_paper(),
        ]
        return "\n".join(sections) + "\n"

    def _names(self, *groups: Group) -> list[str]:
        return [method.name for method in self._methods if method.group in groups]

    def _peers(self, slow: bool) -> list[str]:
        """The light preset and learners from elsewhere, or of these the slow ones."""
        tiers = ("slow", "slowest") if slow else ("main", "fifteen")
        beside = [*self._names("preset"), *self._names("peer")]
        return [m.name for m in self._methods if m.name in beside and m.tier in tiers]

    def _parts(self) -> list[str]:
        return [m.name for m in self._methods if m.name == "paper-expert" or m.tier == "part"]

    def _title(self, name: str) -> str:
        return next(method.marked for method in self._methods if method.name == name)

    def _in_short(self) -> list[str]:
        """What the numbers say of DT-GOL, in sentences that are the same whoever wins."""
        if "dt-gol" not in self._names("paper"):
            return []
        rivals = [name for name in RIVALS if any(m.name == name for m in self._methods)]
        lines = ["## In short", ""]
        for rival in rivals:
            lines += self._against(rival)
        worst = self._tally.worst("dt-gol")
        if worst is not None:
            (nats, nats_on), (errors, errors_on) = worst
            lines.append(
                f"- The worst beginning of any run, against naive: {nats:.1f} nats behind "
                f"({nats_on}), {errors} errors behind ({errors_on})."
            )
        median, slowest = self._tally.us_per_record("dt-gol")
        lines.append(
            f"- DT-GOL takes {median:.0f} µs of processor time per record (median over runs; "
            f"{slowest:.0f} on the slowest stream)."
        )
        return [*lines, ""]

    def _against(self, rival: str) -> list[str]:
        parts = []
        both = self._fifteen.common(["dt-gol", rival])
        if both.streams:
            won, lost = both.wins("dt-gol", rival, "cer")
            text = f"{won} of {len(both.streams)} streams better and {lost} worse in CER"
            if both.halved:
                even = [stream for stream in both.streams if both.half(stream) == "even"]
                text += f" (even streams: {_pair(both, rival, even)})"
            parts.append(f"{text}, mean {_pair(both, rival)}")
        moving = self._tally.where(lambda job: job.source.moving)
        late = moving.having(delay=LONG_DELAY, missing="none", late="fixed")
        late = late.common(["dt-gol", rival])
        if late.streams:
            means = _pair(late, rival, metric="late_cer")
            parts.append(f"moving classes with labels {LONG_DELAY:,} late {means}")
        if not parts:
            return []
        return [f"- **DT-GOL against {self._title(rival)}**: {'; '.join(parts)}."]

    def _measures(self) -> list[str]:
        """All measures of the methods that were run in full, means over the streams."""
        methods = [method for method in self._methods if method.tier == "main"]
        tally = self._fifteen.common([method.name for method in methods])
        if len(methods) < 2 or not tally.streams:
            return []
        halves = {"": tally.streams}
        if tally.halved:
            halves = {
                f", {half}": [s for s in tally.streams if tally.half(s) == half]
                for half in ("odd", "even")
            }
        head, columns = ["method"], []
        for metric, title in MEASURES.items():
            for text, streams in halves.items():
                head.append(f"{title}{text}")
                means = [tally.mean(method.name, metric, streams) for method in methods]
                columns.append(in_bold(means, [*map(digits, means)], metric))
        rows = [
            [method.marked, *(column[i] for column in columns), us(self._tally, method)]
            for i, method in enumerate(methods)
        ]
        how = f"Means over {len(tally.streams)} streams; seeds: {tally.seeds}."
        return ["## All measures", "", how, "", *table([*head, "µs per record"], rows), ""]

    def _compare(self, title: str, names: list[str], kind: str) -> list[str]:
        """CER and AUC of some methods by stream, beside DT-GOL's."""
        if kind == "ours" and "dt-gol" in self._names("paper"):
            names = ["dt-gol", *names]
        tally = self._fifteen.common(names)
        if len(names) < 2 or not tally.streams:
            return []
        lines = [f"## {title}", ""]
        for metric, label in TITLES.items():
            seeds = f"± deviation over up to {tally.seeds} seeds" if tally.seeds > 1 else "one seed"
            lines += [f"{label}. Mean over delays and masks, {seeds}.", ""]
            lines += self._streams(tally, names, metric)
        return lines

    def _streams(self, tally: Comparison, names: list[str], metric: str) -> list[str]:
        rows = []
        for stream in tally.streams:
            cells = [tally.on(stream, name, metric) for name in names]
            shown = in_bold([cell.mean for cell in cells], [*map(str, cells)], metric)
            half = tally.half(stream)
            rows.append([f"{stream} ({half})" if half else stream, *shown])
        rows += self._rank_rows(tally, names, metric)
        times = [self._tally.us_per_record(name)[0] for name in names]
        rows.append(["µs per record", *(digits(time, 0) for time in times)])
        lines = table(["stream", *map(self._title, names)], rows)
        ranking = tally.ranking(names, metric)
        lines += [
            "",
            f"Friedman over {ranking.streams} streams: p = {ranking.p:.2g}; mean ranks closer than "
            f"{ranking.distance:.2f} (Nemenyi, α = 0.05) cannot be told apart.",
            "",
        ]
        return lines

    def _rank_rows(self, tally: Comparison, names: list[str], metric: str) -> list[list[str]]:
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
        """Mean CER by mask and delay over the sets."""
        sets = self._fifteen.having(family="sets")
        lines = []
        for group in with_the_same_runs(sets, self._methods):
            shared = sets.common([method.name for method in group])
            cells = sorted({(job.missing, job.delay) for job in shared.outcomes})
            parts = [shared.having(missing=missing, delay=delay) for missing, delay in cells]
            rows = [
                [method.marked, *(digits(part.mean(method.name, "cer"), 4) for part in parts)]
                for method in group
            ]
            head = ["method", *(f"{missing}, L = {delay}" for missing, delay in cells)]
            lines += [f"Seeds: {shared.seeds}.", "", *table(head, rows), ""]
        if not lines:
            return []
        return ["## By mask and delay", "", "Mean CER over the sets.", "", *lines]

    def _blind_zone(self) -> list[str]:
        drift = self._fifteen.having(family="drift")
        lines = []
        for group in with_the_same_runs(drift, self._methods):
            shared = drift.common([method.name for method in group])
            rows = [
                [method.marked, *(_zone(shared, stream, method.name) for stream in shared.streams)]
                for method in group
            ]
            head = ["method", *shared.streams]
            lines += [f"Seeds: {shared.seeds}.", "", *table(head, rows), ""]
        if not lines:
            return []
        how = (
            "Accuracy inside / largest drop / steps until back (mean over seeds; > where some seed "
            "never came back and counts with the rest of the stream)."
        )
        return ["## Blind zone", "", how, "", *lines]

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
        tally = self._fifteen.common(names)
        streams = [stream for stream in tally.streams if stream in paper.CER]
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
                    cells.append(f"{tally.on(stream, name, metric).mean:.3f} / {quoted:.3f}")
                rows.append([stream, *cells])
            head = [metric.upper(), *map(self._title, names)]
            lines += [*table(head, rows), ""]
        return lines


def _pair(tally: Comparison, rival: str, streams: Sequence[str] = (), metric: str = "cer") -> str:
    ours, theirs = (tally.mean(name, metric, streams) for name in ("dt-gol", rival))
    return f"{ours:.4f} against {theirs:.4f}"


def _zone(tally: Comparison, stream: str, method: str) -> str:
    zones = [
        (zone.accuracy, zone.drop, zone.recovery, job.source.rows - job.source.change)
        for job, outcome in tally.runs(stream, method)
        if (zone := outcome.blind) is not None
    ]
    if not zones:
        return "–"
    accuracy, drop = np.mean([z[0] for z in zones]), np.mean([z[1] for z in zones])
    back = np.mean([z[3] if z[2] is None else z[2] for z in zones])
    never = ">" if any(z[2] is None for z in zones) else ""
    return f"{accuracy:.3f} / {drop:.3f} / {never}{back:.0f}"
