"""Scores, totals and snapshots of the evaluator, against what is on its two topics."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import orjson

from pipeline.evaluation.pairing import Bounds, Evaluation
from pipeline.evaluation.pairs import PAIR_BYTES
from pipeline.kafka.record import Record
from pipeline.learning.fold_config import FoldConfig
from tests.faults.checks import Found, Observed, snapshots, state_hash
from topics.codec import read_label, read_prediction
from topics.reasons import Rejection


def check_evaluator(observed: Observed) -> Found:
    """Every prediction whose label is known was scored, counted once, and the state is whole."""
    found = Found()
    own = observed.settings.evaluator
    pairs_max = own.pairs_bytes_max // PAIR_BYTES
    limits = Bounds(pairs_max, own.labels_max, own.window_rows, own.windows_max, own.boards_max)
    topics = {name: observed.read(name) for name in ("predictions", "labels", "scores")}
    for number, repository in observed.repositories(
        "evaluator", "predictions", "labels", "journal"
    ):
        about = observed.cluster.topic_ids["journal"], number, limits
        here = {
            name: [record for record in each[number] if observed.history.was_read(name, record)]
            for name, each in topics.items()
        }
        found.inputs += len(here["predictions"]) + len(here["labels"])
        stored = list(snapshots(repository, partial(Evaluation.restore, *about)))
        if not stored:
            found.differs(f"partition {number}: the evaluator has no whole snapshot")
            continue
        for _, evaluation in stored:
            found.snapshots += 1
            offline = evaluate(observed, _offline(evaluation), here, evaluation.next_offsets)
            if state_hash(evaluation.snapshot()) != state_hash(offline.snapshot()):
                offsets = evaluation.next_offsets
                found.differs(f"partition {number}: the evaluator's state at {offsets} differs")
        newest = stored[0][1]
        everything = {name: each[number] for name, each in topics.items()}
        if newest.next_offsets != {name: _end(everything[name]) for name in newest.next_offsets}:
            found.differs(f"partition {number}: the evaluator's newest snapshot is not at the end")
        _check_totals(found, number, newest, here)
        _check_scores(found, number, here, _answers(everything).keys() - _answers(here).keys())
    return found


def _offline(evaluation: Evaluation) -> Evaluation:
    """An empty one that never forgets a label."""
    bounds = replace(evaluation.bounds, labels_max=sys.maxsize)
    return Evaluation(evaluation.journal_id, evaluation.partition, bounds)


def evaluate(
    observed: Observed,
    evaluation: Evaluation,
    topics: Mapping[str, Sequence[Record]],
    ends: Mapping[str, int],
) -> Evaluation:
    """All labels, then all predictions, up to the given ends: each finds its label.

    No evaluator reads in this order; what one has forgotten too soon is missed here.
    """
    limits = FoldConfig.from_settings(observed.settings).limits
    for record in _until(topics["labels"], ends["labels"]):
        label = read_label(record.value, record.key, record.timestamp_ms, limits)
        if isinstance(label, Rejection):
            evaluation.counts["labels/refused"] += 1
        else:
            evaluation.label(label, record.offset)
    for record in _until(topics["predictions"], ends["predictions"]):
        prediction = read_prediction(record.value)
        if isinstance(prediction, Rejection):
            evaluation.counts["predictions/refused"] += 1
        else:
            evaluation.predict(prediction)
    evaluation.next_offsets = dict(ends)
    return evaluation


def _end(records: Sequence[Record]) -> int:
    return records[-1].offset + 1 if records else 0


def _until(records: Sequence[Record], end: int) -> list[Record]:
    return [record for record in records if record.offset < end]


def _truth(topics: Mapping[str, Sequence[Record]]) -> dict[str, int]:
    """The newest label of every id, by plain counting."""
    labels = [orjson.loads(record.value or b"") for record in topics["labels"]]
    return {label["id"]: int(label["y"]) for label in labels}


def _answers(topics: Mapping[str, Sequence[Record]]) -> dict[int, tuple[str, float]]:
    """Id and probability of every prediction, once per identity, repetitions left out."""
    predictions = [orjson.loads(record.value or b"") for record in topics["predictions"]]
    return {
        each["at"]["offset"]: (each["id"], each["p"]) for each in predictions if not each["repeat"]
    }


def _check_totals(
    found: Found, number: int, evaluation: Evaluation, topics: Mapping[str, Sequence[Record]]
) -> None:
    """The totals, against a count that shares no code with the evaluator."""
    truth = _truth(topics)
    labelled = [(p, truth[id]) for id, p in _answers(topics).values() if id in truth]
    right = sum(int(p > 0.5) == y for p, y in labelled)
    totals = [board.summary().total for board in evaluation.boards.values()]
    counted = sum(total.count for total in totals)
    correct = round(sum(total.count * (total.forecast.accuracy or 0.0) for total in totals))
    if (counted, correct) != (len(labelled), right):
        found.twice += max(0, counted - len(labelled))
        found.remarks.append(
            f"partition {number}: {counted} counted, {correct} right; "
            f"offline {len(labelled)} and {right}"
        )


def _check_scores(
    found: Found, number: int, topics: Mapping[str, Sequence[Record]], forgotten: set[int]
) -> None:
    """A score for every pair; copies are equal; the one of the newest label is true.

    Not so for what is forgotten: it may have been scored before it was lost, and never again.
    """
    truth, answers = _truth(topics), _answers(topics)
    texts: dict[int, list[bytes]] = defaultdict(list)
    for record in topics["scores"]:
        value = record.value or b""
        texts[orjson.loads(value)["at"]["offset"]].append(value)
    for offset in answers.keys() - texts.keys():
        if answers[offset][0] in truth:
            found.lost += 1
            found.remarks.append(f"partition {number}: the prediction {offset} was never scored")
    for offset, values in texts.items():
        scores = [orjson.loads(value) for value in values]
        newest = max(scores, key=lambda score: int(score["label_offset"]))
        known = offset in answers and newest["y"] == truth[newest["id"]]
        if not known and offset not in forgotten:
            found.differing += 1
            found.remarks.append(f"partition {number}: the score of {offset} is not true")
        of_label = defaultdict(set)
        for score in scores:
            score.pop("rescored")
            of_label[score["label_offset"]].add(orjson.dumps(score))
        found.duplicates += len(scores) - len(of_label)
        if any(len(copies) > 1 for copies in of_label.values()):
            found.differing += 1
            found.remarks.append(f"partition {number}: scores of {offset} differ")
