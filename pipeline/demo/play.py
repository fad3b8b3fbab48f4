"""Plays a story through the topics with the Python client, and reads what comes back meanwhile.

One thread: what is due is sent, the rest of the time is spent reading. The play ends when all is
sent, answered and scored, or some time after the last label if something is not.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pipeline.client import FeatureProducer, LabelProducer
from pipeline.client.sending import ClientSettings
from pipeline.client.tail import Tail
from pipeline.demo.stories import DAY_MS, Case, Story
from pipeline.demo.tally import Tally
from pipeline.files.player import Player
from pipeline.operators.board import Board

READ_S = 0.1
GRACE_S = 20.0
"""After the last label: how long answers and scores may still take."""


class Event(NamedTuple):
    """A record or a label at its moment, in seconds since the play began."""

    at_s: float
    is_label: bool
    case: Case


class Played(NamedTuple):
    """What a play gave."""

    tally: Tally
    labels: int
    dead_letters: dict[str, int]


class Moment(NamedTuple):
    """How far the play is."""

    sent: int
    labels_sent: int
    day: float
    elapsed_s: float


def timetable(story: Story, play_s: float) -> list[Event]:
    """All events in order; the story's days take ``play_s``, the last labels a little longer."""
    start = story.cases[0].at_ms
    scale = play_s / (story.days * DAY_MS)
    events = [
        Event((moment - start) * scale, is_label, case)
        for case in story.cases
        for moment, is_label in ((case.at_ms, False), (case.known_ms, True))
    ]
    return sorted(events, key=lambda event: (event.at_s, event.is_label, event.case.row.number))


def play(
    story: Story,
    client: ClientSettings,
    prefix: str,
    play_s: float,
    show: Callable[[Moment, Tally, Board], None],
) -> Played:
    """Play to the end; ``show`` is called several times a second."""
    tally, board = Tally(story), Board()
    events = timetable(story, play_s)
    names = {prefix + name: name for name in ("predictions", "scores", "dead-letters")}
    with (
        Tail(client, list(names)) as tail,
        FeatureProducer(client, prefix=prefix) as features,
        LabelProducer(client, prefix=prefix) as labels,
    ):
        player = Player(features, labels)
        start = time.monotonic()
        for wait_s in _sending(events, player, start):
            _take(tail, wait_s, names, tally, board)
            show(_moment(player, story, start, play_s), tally, board)
        player.finish()
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until:
            if not tally.unanswered and tally.scored == player.labels_sent:
                break
            _take(tail, READ_S, names, tally, board)
            show(_moment(player, story, start, play_s), tally, board)
    return Played(tally, player.labels_sent, board.view().dead_letters)


def send_all(story: Story, player: Player, play_s: float) -> None:
    """Send a whole story in its time, and look at nothing that comes back."""
    for wait_s in _sending(timetable(story, play_s), player, time.monotonic()):
        time.sleep(wait_s)


def _sending(events: list[Event], player: Player, start: float) -> Iterator[float]:
    """Send what is due; between, yield how long there is nothing to send."""
    for event in events:
        while (left := start + event.at_s - time.monotonic()) > 0:
            yield min(left, READ_S)
        case = event.case
        ts_ms = case.known_ms if event.is_label else case.at_ms
        player.send(case.row, event.is_label, case.stream, ts_ms)


def _take(tail: Tail, wait_s: float, names: dict[str, str], tally: Tally, board: Board) -> None:
    for message in tail.read(wait_s):
        name = names[message.topic() or ""]
        if name == "predictions":
            said = board.predicted(message.value())
            if said is not None:
                tally.hear(said)
        elif name == "scores":
            score = board.scored(message.value())
            if score is not None:
                tally.judge(score)
        else:
            board.refused(message.headers() or [])  # type: ignore[arg-type]


def _moment(player: Player, story: Story, start: float, play_s: float) -> Moment:
    elapsed = time.monotonic() - start
    day = min(story.days, elapsed / play_s * story.days)
    return Moment(player.features_sent, player.labels_sent, day, elapsed)
