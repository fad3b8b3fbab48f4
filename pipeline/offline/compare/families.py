"""Tables of the families of streams beside the fifteen, and of the experts of DT-GOL."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from pipeline.offline.compare.jobs import Job
from pipeline.offline.compare.markdown import digits, in_bold, table
from pipeline.offline.compare.methods import Method
from pipeline.offline.compare.scores import Outcome
from pipeline.offline.compare.sources import Family
from pipeline.offline.compare.tally import MEASURES, Comparison


def moving_classes(tally: Comparison, methods: Sequence[Method]) -> list[str]:
    """CER from step L + 1 on: means over the streams by delay, and each stream at the longest.

    Methods with fewer runs have tables of their own, with DT-GOL.
    """
    lines = []
    moving = tally.where(lambda job: job.source.moving)
    settings = {(job.family, job.missing, job.late) for job in moving.outcomes}
    compared = [method for method in methods if method.group != "ablation"]
    for family, missing, late in sorted(settings):
        part = moving.having(family=family, missing=missing, late=late)
        gaps = "" if missing == "none" else f", {float(missing):.0%} of the cells missing"
        lines += [f"### {family.capitalize()}, {late} delays{gaps}", ""]
        for group in _with_the_same_runs(part, compared):
            lines += _by_delay(tally, part.common([method.name for method in group]), group)
    if not lines:
        return []
    return ["## Classes that move", "", "CER from step L + 1 on.", "", *lines]


def _by_delay(tally: Comparison, shared: Comparison, methods: Sequence[Method]) -> list[str]:
    delays = sorted({job.delay for job in shared.outcomes})
    by_delay = [shared.having(delay=delay) for delay in delays]
    columns = [[each.mean(m.name, "late_cer") for m in methods] for each in by_delay]
    columns += [
        [by_delay[-1].on(stream, m.name, "late_cer").mean for m in methods]
        for stream in shared.streams
    ]
    shown = [in_bold(column, [*map(digits, column)], "late_cer") for column in columns]
    rows = [
        [method.marked, *(column[i] for column in shown), us(tally, method)]
        for i, method in enumerate(methods)
    ]
    head = ["method", *(f"L = {delay}" for delay in delays), *shared.streams, "µs per record"]
    how = (
        f"Means over the streams at each delay, then each stream at L = {delays[-1]}; "
        f"seeds: {shared.seeds}."
    )
    return [how, "", *table(head, rows), ""]


def family_tables(
    tally: Comparison, methods: Sequence[Method], family: Family, title: str, metrics: Sequence[str]
) -> list[str]:
    """Some measures by stream; methods with fewer runs have tables of their own, with DT-GOL."""
    lines = []
    for stream in tally.having(family=family).streams:
        part = tally.having(family=family, stream=stream)
        for group in _with_the_same_runs(part, methods):
            shown = part.common([method.name for method in group])
            columns = []
            for metric in metrics:
                means = [shown.mean(method.name, metric) for method in group]
                columns.append(in_bold(means, [*map(digits, means)], metric))
            rows = [
                [method.marked, *(column[i] for column in columns), us(tally, method)]
                for i, method in enumerate(group)
            ]
            cells = sorted({(job.missing, job.delay) for job in shown.outcomes})
            run = ", ".join(f"{missing} L = {delay}" for missing, delay in cells)
            head = ["method", *(MEASURES[metric] for metric in metrics), "µs per record"]
            lines += [f"{stream}: {run}; seeds: {shown.seeds}.", "", *table(head, rows), ""]
    return [f"## {title}", "", *lines] if lines else []


def _with_the_same_runs(tally: Comparison, methods: Sequence[Method]) -> list[list[Method]]:
    """Methods in groups that have the same delays, masks and seeds; each begins with DT-GOL."""
    groups: dict[frozenset[object], list[Method]] = defaultdict(list)
    for method in methods:
        if method.name in tally.methods and method.name != "dt-gol":
            groups[frozenset(tally.cells(method.name))].append(method)
    ours = [m for m in methods if m.name == "dt-gol" and m.name in tally.methods]
    return [[*ours, *group] for group in groups.values()]


def experts_alone(tally: Comparison) -> list[str]:
    """Each expert by itself in the runs of DT-GOL, and how much of the forecast was its."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for job, outcome in tally.having(method="dt-gol").outcomes.items():
        if outcome.experts:
            groups[_group(job, job.source.name)].append(outcome)
    if not groups:
        return []
    names = list(next(iter(groups.values()))[0].experts)
    rows = []
    for group, outcomes in sorted(groups.items(), key=lambda item: item[0].lower()):
        cers = [float(np.mean([each.experts[name].cer for each in outcomes])) for name in names]
        weights = [np.mean([each.experts[name].weight for each in outcomes]) for name in names]
        whole = float(np.mean([each.cer for each in outcomes if each.cer is not None]))
        cells = [f"{digits(cer)} ({w:.2f})" for cer, w in zip(cers, weights, strict=True)]
        rows.append([group, digits(whole), *in_bold(cers, cells, "cer")])
    how = "CER of each expert alone in the runs of DT-GOL, and in brackets its mean weight."
    head = ["stream", "DT-GOL", *names]
    return ["## What each expert is worth", "", how, "", *table(head, rows), ""]


def without_one_expert(tally: Comparison, methods: Sequence[Method]) -> list[str]:
    """What leaving an expert out costs, by family of streams."""
    left_out = [method for method in methods if method.group == "ablation"]
    shared = tally.common(["dt-gol", *(method.name for method in left_out)])
    if not left_out or not shared.streams:
        return []
    halves = tally.where(lambda job: job.family in ("sets", "drift"))
    groups: dict[str, set[object]] = defaultdict(set)
    for job in shared.outcomes:
        fifteen = job.family in ("sets", "drift")
        half = halves.half(job.source.name) if fifteen else ""
        groups[_group(job, half or job.family)].add(job.cell)
    rows = []
    for group, cells in sorted(groups.items()):
        part = shared.in_cells(cells)
        whole = part.mean("dt-gol", "cer")
        costs = [part.mean(method.name, "cer") - whole for method in left_out]
        rows.append([group, digits(whole, 4), *(f"{cost:+.4f}" for cost in costs)])
    how = (
        "CER of DT-GOL, and by how much it rises without one expert: mean over the streams of a "
        f"family, {shared.seeds} seeds at most; below zero it is better without."
    )
    head = ["streams", "DT-GOL", *(method.title for method in left_out)]
    return ["## Without one expert", "", how, "", *table(head, rows), ""]


def worst_prefixes(tally: Comparison, methods: Sequence[Method]) -> list[str]:
    """How far each method was behind naive at the worst moment of any run."""
    rows = []
    for method in methods:
        worst = tally.worst(method.name)
        if worst is not None and method.name != "naive":
            (nats, nats_on), (errors, errors_on) = worst
            rows.append([method.marked, f"{nats:.1f} ({nats_on})", f"{errors} ({errors_on})"])
    if not rows:
        return []
    how = "The most by which a method was behind naive, over all beginnings of all runs."
    head = ["method", "nats (stream)", "errors (stream)"]
    return ["## Worst prefix against naive", "", how, "", *table(head, rows), ""]


def us(tally: Comparison, method: Method) -> str:
    """Processor time per record, median over all runs of a method."""
    return digits(tally.us_per_record(method.name)[0], 0)


def _group(job: Job, name: str) -> str:
    """Moving classes are told apart by delay: it decides what can be known."""
    if not job.source.moving:
        return name
    gaps = "" if job.missing == "none" else f", {job.missing} missing"
    return f"{name}, L = {job.delay}{'' if job.late == 'fixed' else f' {job.late}'}{gaps}"
