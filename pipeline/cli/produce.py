"""`dtgol produce FILE`: a file as a live stream, features now and labels later."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli import BadInput
from pipeline.cli.codes import codes
from pipeline.cli.connection import Target, cluster_options
from pipeline.cli.progress import progress
from pipeline.cli.rows import row_options

if TYPE_CHECKING:
    from pipeline.files.player import Sent
    from pipeline.files.records import Row


@click.command(epilog=codes("produce"))
@click.argument("file", type=click.Path(path_type=Path))
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
@click.option(
    "--id", "id_column", metavar="COLUMN", help="Column with the id.  [default: row number]"
)
@row_options
@click.option(
    "--delay",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="How many records late a label is: with 50, that of record 1 is sent just before record "
    "51. 0 is the same as 1.",
)
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
    "record came first is then told by timestamps alone.",
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON on stdout.")
def produce(
    target: Target,
    file: Path,
    stream: str,
    key: str,
    id_column: str | None,
    label: str,
    delay: int,
    delay_ms: str | None,
    no_labels: bool,
    rate: float | None,
    missing: str,
    seed: int,
    shuffle: bool,
    limit: int | None,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Send the records of FILE, CSV or one JSON object per line (.jsonl), as features and labels.

    Rows, hidden values and order are those of `dtgol backtest` with the same options. A JSON line
    is either flat or as on the wire: {"id": …, "x": {…}, "y": …}. With --delay each label is stored
    before the next record is sent, so the order is that of the backtest.
    """
    from pipeline.client import ClusterError, DeliveryError, FeatureProducer, LabelProducer
    from pipeline.client import RefusedError as Refused
    from pipeline.files.playback import DelayTime, delay_generator, in_steps, in_time
    from pipeline.files.player import Player
    from pipeline.files.records import Mask, RecordsError, read_records

    key_column = None if key in ("stream", "id") else key
    try:
        spread = None if delay_ms is None else DelayTime.parse(delay_ms)
        rows = list(
            read_records(
                file,
                label=label,
                mask=Mask.parse(missing),
                seed=seed,
                shuffle=shuffle,
                limit=limit,
                id_column=id_column,
                key_column=key_column,
            )
        )
        rows = [_named(row, stream, key, no_labels) for row in rows]
    except RecordsError as error:
        raise BadInput(str(error)) from None
    if spread is None:
        dues = in_steps(rows, delay, rate)
    else:
        generator = delay_generator(seed)
        dues = in_time(rows, lambda: spread.draw(generator), rate)
    prefix = target.prefix
    try:
        with (
            FeatureProducer(target.client, prefix=prefix) as features,
            LabelProducer(target.client, prefix=prefix) as labels,
            progress(len(rows), "records") as update,
        ):
            player = Player(features, labels, in_order=spread is None and not no_wait)
            for row, is_label in dues:
                player.send(row, is_label, stream)
                update(player.features_sent)
            sent = player.finish()
    except (ClusterError, DeliveryError, Refused) as error:
        raise BadInput(str(error)) from None
    _report(sent, stream, as_json)


def _named(row: "Row", stream: str, key: str, no_labels: bool) -> "Row":
    """The row with its id and key settled."""
    from pipeline.files.records import RecordsError

    id = row.id or str(row.number)
    given = {"stream": row.key or stream, "id": id}.get(key, row.key)
    if given is None:
        raise RecordsError(f"row {row.number} has no {key!r} to be its key")
    return row._replace(id=id, key=given, label=None if no_labels else row.label)


def _report(sent: "Sent", stream: str, as_json: bool) -> None:
    rate = sent.features / sent.seconds if sent.seconds else 0.0
    if as_json:
        said = {"stream": stream, **sent._asdict(), "records_per_s": round(rate, 1)}
        click.echo(json.dumps(said))
    else:
        click.echo(
            f"{sent.features} features and {sent.labels} labels of stream {stream} are stored: "
            f"{sent.seconds:.1f} s, {rate:.0f} records/s"
        )
