"""`dtgol produce FILE`: a file as a live stream, features now and labels later."""

import hashlib
from typing import TYPE_CHECKING

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import (
    RowSource,
    Target,
    cluster_options,
    echo_json,
    json_option,
    row_options,
)
from pipeline.cli.progress import progress
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.offline.files.player import Sent
    from pipeline.offline.files.records import Row


NAME_CHARS = 64
"""Of a file's name that an id carries."""


@click.command(epilog=help_line("produce"))
@cluster_options
@click.option("--stream", default="default", show_default=True, help="The stream's name.")
@click.option(
    "--key",
    default="stream",
    show_default=True,
    metavar="stream|id|COLUMN",
    help="Key of features and label: the stream's name, the id, or what a column holds; that "
    "column is then not sent as a feature.",
)
@row_options
@click.option(
    "--delay-ms",
    metavar="MEAN|MIN..MAX",
    help="How many milliseconds late labels are, instead of --delay: 5000 draws from an "
    "exponential distribution with this mean, 2000..8000 evenly between the two.",
)
@click.option("--no-labels", is_flag=True, help="Send features only.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Records per second.  [default: as fast as it goes]",
)
@click.option(
    "--no-wait",
    is_flag=True,
    help="With --delay: do not wait until each record is stored. Much faster; whether a label or a "
    "record came first is then decided by timestamps alone.",
)
@json_option
def produce(
    target: Target,
    file: RowSource,
    stream: str,
    key: str,
    delay: int,
    delay_ms: str | None,
    no_labels: bool,
    rate: float | None,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Send the records of FILE, CSV or one JSON object per line (.jsonl), as features and labels.

    Rows, hidden values and order are those of `dtgol backtest` with the same options. A JSON line
    is either flat or as on the wire: {"id": …, "x": {…}, "y": …}. With --delay each label is stored
    before the next record is sent, so the order is that of the backtest.

    Without --id an id is the file's name, a hash of its content and of what is hidden, and the row:
    another file never repeats an id, and the same one sent again does, so that a run that failed
    can be run again.
    """
    from pipeline.client import FeatureProducer, LabelProducer
    from pipeline.offline.files.playback import DelayTime, delay_generator, in_steps, in_time
    from pipeline.offline.files.player import Player

    delay_time = None if delay_ms is None else DelayTime.parse(delay_ms)
    given, table = file.read(None if key in ("stream", "id") else key)
    start = _id_start(file)
    rows = [_named(row, start, stream, key, no_labels) for row in given]
    repeats = len(rows) - len({row.id for row in rows})
    if delay_time is None:
        due = in_steps(rows, delay, rate)
    else:
        generator = delay_generator(file.seed)
        due = in_time(rows, lambda: delay_time.draw(generator), rate)
    with (
        FeatureProducer(target.client, prefix=target.prefix) as features,
        LabelProducer(target.client, prefix=target.prefix) as labels,
        progress(len(rows), "records") as update,
    ):
        # Only now: who is not let in gets that one sentence.
        click.echo("\n".join(table.describe()), err=True)
        if repeats:
            click.echo(
                f"{repeats} of {len(rows)} rows repeat an id: each is answered as a repeat, and a "
                f"label that differs from the first is a correction",
                err=True,
            )
        player = Player(features, labels, in_order=delay_time is None and not no_wait)
        for row, is_label in due:
            player.send(row, is_label, stream, None if is_label else row.time_ms)
            update(player.features_sent)
        sent = player.finish()
    _report(sent, stream, repeats, as_json)


def _id_start(file: RowSource) -> str:
    """What the ids of rows without one begin with."""
    hidden = hashlib.sha256(repr((file.mask, file.seed, file.layout)).encode()).hexdigest()[:4]
    return f"{file.source.name[:NAME_CHARS]}-{file.source.digest()}{hidden}-"


def _named(row: "Row", start: str, stream: str, key: str, no_labels: bool) -> "Row":
    """The row with its id and key settled."""
    id = row.id or f"{start}{row.number}"
    given = {"stream": row.key or stream, "id": id}.get(key, row.key)
    if given is None:
        raise InputError(f"row {row.number} has no {key!r} to be its key")
    return row._replace(id=id, key=given, label=None if no_labels else row.label)


def _report(sent: "Sent", stream: str, repeats: int, as_json: bool) -> None:
    rate = sent.features / sent.seconds if sent.seconds else 0.0
    if as_json:
        rounded = round(rate, 1)
        echo_json(
            {"stream": stream, **sent._asdict(), "repeats": repeats, "records_per_s": rounded}
        )
    else:
        click.echo(
            f"{sent.features} features and {sent.labels} labels of stream {stream} are stored: "
            f"{sent.seconds:.1f} s, {rate:.0f} records/s"
        )
