"""Plays a story through the topics with the Python client, and reads what comes back meanwhile.

One thread: what is due is sent, the rest of the time is spent reading. The play ends when all is
sent, answered and scored, or when nothing more has come for some time.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

from pipeline.client import FeatureProducer, LabelProducer
from pipeline.kafka.clients import ClientSettings
from pipeline.kafka.reader import Tail
from pipeline.offline.files.player import Player
from pipeline.ops.stream_table import StreamTable
from pipeline.sandbox.demo.results import PlayResults
from pipeline.sandbox.demo.stories import DAY_MS, Case, Story
from topics.predictions import Prediction
from topics.scores import Score

READ_S = 0.1
GRACE_S = 20.0
"""After the last label: the play ends when for so long no more answer or score has come."""


class StoryEvent(NamedTuple):
    """A record or a label at its moment, in seconds since the play began."""

    at_s: float
    is_label: bool
    case: Case


class Played(NamedTuple):
    """What a play gave."""

    results: PlayResults
    labels: int
    dead_letters: dict[str, int]


class Moment(NamedTuple):
    """How far the play is."""

    sent: int
    labels_sent: int
    day: float
    elapsed_s: float


def timetable(story: Story, play_s: float) -> list[StoryEvent]:
    """All events in order; the story's days take ``play_s``, the last labels a little longer."""
    start = story.cases[0].at_ms
    scale = play_s / (story.days * DAY_MS)
    events = [
        StoryEvent((moment - start) * scale, is_label, case)
        for case in story.cases
        for moment, is_label in ((case.at_ms, False), (case.known_ms, True))
    ]
    return sorted(events, key=lambda event: (event.at_s, event.is_label, event.case.row.number))


def play(
    story: Story,
    client: ClientSettings,
    prefix: str,
    play_s: float,
    show: Callable[[Moment, PlayResults, StreamTable], None],
) -> Played:
    """Play to the end; ``show`` is called several times a second."""
    results, table = PlayResults(story), StreamTable()
    events = timetable(story, play_s)
    names = {prefix + name: name for name in ("predictions", "scores", "dead-letters")}
    with (
        closing(Tail(client, list(names))) as tail,
        FeatureProducer(client, prefix=prefix) as features,
        LabelProducer(client, prefix=prefix) as labels,
    ):
        player = Player(features, labels)
        start = time.monotonic()
        for wait_s in _sending(events, player, start):
            _take(tail, wait_s, names, results, table)
            show(_moment(player, story, start, play_s), results, table)
        player.finish()
        seen, until = 0, time.monotonic() + GRACE_S
        while results.unanswered or results.scored < player.labels_sent:
            _take(tail, READ_S, names, results, table)
            show(_moment(player, story, start, play_s), results, table)
            if results.answered + results.scored > seen:
                seen, until = results.answered + results.scored, time.monotonic() + GRACE_S
            elif time.monotonic() > until:
                break
    return Played(results, player.labels_sent, table.view().dead_letters)


def send_all(story: Story, player: Player, play_s: float) -> None:
    """Send a whole story in its time, and look at nothing that comes back."""
    for wait_s in _sending(timetable(story, play_s), player, time.monotonic()):
        time.sleep(wait_s)


def _sending(events: list[StoryEvent], player: Player, start: float) -> Iterator[float]:
    """Send what is due; between, yield how long there is nothing to send."""
    for event in events:
        while (left := start + event.at_s - time.monotonic()) > 0:
            yield min(left, READ_S)
        case = event.case
        ts_ms = case.known_ms if event.is_label else case.at_ms
        player.send(case.row, event.is_label, case.stream, ts_ms)


def _take(
    tail: Tail, wait_s: float, names: dict[str, str], results: PlayResults, table: StreamTable
) -> None:
    for record in tail.poll(wait_s):
        message = table.add(names[record.topic], record)
        if isinstance(message, Prediction):
            results.add_prediction(message)
        elif isinstance(message, Score):
            results.add_score(message)


def _moment(player: Player, story: Story, start: float, play_s: float) -> Moment:
    elapsed = time.monotonic() - start
    day = min(story.days, elapsed / play_s * story.days)
    return Moment(player.features_sent, player.labels_sent, day, elapsed)
