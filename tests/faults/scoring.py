"""The judge of the evaluator: scores, totals and snapshots against what is on its two topics."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import orjson
from confluent_kafka import Message

from pipeline.evaluation import Bounds, Evaluation
from tests.faults.judgement import Court, Found, manifests, state_hash
from topics.codec import read_label, read_prediction
from topics.refusals import Rejection


def judge_evaluator(court: Court) -> Found:
    """Every prediction whose label is known was scored, counted once, and the state is whole."""
    found = Found()
    own = court.settings.evaluator
    limits = Bounds(own.pairs_max, own.labels_max, own.window_rows, own.windows_max)
    topics = {name: court.read(name) for name in ("predictions", "labels", "scores")}
    for number, shelf in court.shelves("evaluator", "predictions", "labels", "journal"):
        known = court.cluster.topic_ids["journal"], number, limits
        here = {
            name: [message for message in each[number] if court.history.was_read(name, message)]
            for name, each in topics.items()
        }
        found.inputs += len(here["predictions"]) + len(here["labels"])
        kept = list(manifests(shelf, partial(Evaluation.restore, *known)))
        if not kept:
            found.differs(f"partition {number}: the evaluator has no whole snapshot")
            continue
        for _, evaluation in kept:
            found.snapshots += 1
            offline = evaluate(court, _offline(evaluation), here, evaluation.next_offsets)
            if state_hash(*evaluation.snapshot()) != state_hash(*offline.snapshot()):
                offsets = evaluation.next_offsets
                found.differs(f"partition {number}: the evaluator's state at {offsets} differs")
        newest = kept[0][1]
        everything = {name: each[number] for name, each in topics.items()}
        if newest.next_offsets != {name: _end(everything[name]) for name in newest.next_offsets}:
            found.differs(f"partition {number}: the evaluator's newest snapshot is not at the end")
        _judge_totals(found, number, newest, here)
        _judge_scores(found, number, here, _answers(everything).keys() - _answers(here).keys())
    return found


def _offline(evaluation: Evaluation) -> Evaluation:
    """One that has heard nothing yet, and never forgets a label."""
    bounds = replace(evaluation.bounds, labels_max=sys.maxsize)
    return Evaluation(evaluation.journal_id, evaluation.partition, bounds)


def evaluate(
    court: Court,
    evaluation: Evaluation,
    topics: Mapping[str, Sequence[Message]],
    ends: Mapping[str, int],
) -> Evaluation:
    """All labels, then all predictions, up to the given ends: each finds its label.

    No evaluator reads so; what one has forgotten too soon is missed here.
    """
    limits = court.settings.rules.limits
    for message in _until(topics["labels"], ends["labels"]):
        time_ms = message.timestamp()[1]
        label = read_label(_bytes(message.value()), _bytes(message.key()), time_ms, limits)
        if isinstance(label, Rejection):
            evaluation.counts["labels/refused"] += 1
        else:
            evaluation.label(label, message.offset() or 0)
    for message in _until(topics["predictions"], ends["predictions"]):
        prediction = read_prediction(_bytes(message.value()))
        if isinstance(prediction, Rejection):
            evaluation.counts["predictions/refused"] += 1
        else:
            evaluation.predict(prediction)
    evaluation.next_offsets = dict(ends)
    return evaluation


def _end(messages: Sequence[Message]) -> int:
    return (messages[-1].offset() or 0) + 1 if messages else 0


def _until(messages: Sequence[Message], end: int) -> list[Message]:
    return [message for message in messages if (message.offset() or 0) < end]


def _bytes(given: str | bytes | None) -> bytes | None:
    assert not isinstance(given, str)
    return given


def _truth(topics: Mapping[str, Sequence[Message]]) -> dict[str, int]:
    """The newest label of every id, by plain counting."""
    labels = [orjson.loads(message.value() or b"") for message in topics["labels"]]
    return {label["id"]: int(label["y"]) for label in labels}


def _answers(topics: Mapping[str, Sequence[Message]]) -> dict[int, tuple[str, float]]:
    """What was said, once per identity, repetitions left out."""
    said = [orjson.loads(message.value() or b"") for message in topics["predictions"]]
    return {each["at"]["offset"]: (each["id"], each["p"]) for each in said if not each["repeat"]}


def _judge_totals(
    found: Found, number: int, evaluation: Evaluation, topics: Mapping[str, Sequence[Message]]
) -> None:
    """The totals, against a count that shares no code with the evaluator."""
    truth = _truth(topics)
    judged = [(p, truth[id]) for id, p in _answers(topics).values() if id in truth]
    right = sum(int(p > 0.5) == y for p, y in judged)
    totals = [board.summary().total for board in evaluation.boards.values()]
    counted = sum(total.count for total in totals)
    correct = round(sum(total.count * (total.forecast.accuracy or 0.0) for total in totals))
    if (counted, correct) != (len(judged), right):
        found.twice += max(0, counted - len(judged))
        found.remarks.append(
            f"partition {number}: {counted} counted, {correct} right; "
            f"offline {len(judged)} and {right}"
        )


def _judge_scores(
    found: Found, number: int, topics: Mapping[str, Sequence[Message]], forgotten: set[int]
) -> None:
    """A score for every pair; copies are equal; the one of the newest label is true.

    Not so for what is forgotten: it may have been scored before it was lost, and never again.
    """
    truth, answers = _truth(topics), _answers(topics)
    texts: dict[int, list[bytes]] = defaultdict(list)
    for message in topics["scores"]:
        value = _bytes(message.value()) or b""
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
