"""`dtgol predictions`: the newest predictions and those that follow, without a group."""

from contextlib import closing, suppress
from typing import TYPE_CHECKING

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import Target, cluster_options, tail_options
from pipeline.errors import ClusterError

if TYPE_CHECKING:
    from pipeline.kafka.record import Record

CATCH_UP_S = 60.0
POLL_S = 0.5


@click.command(epilog=help_line("predictions"))
@cluster_options
@click.option("--stream", "streams", multiple=True, help="Only this one; may be given again.")
@tail_options(last=10)
@click.option("--json", "as_json", is_flag=True, help="Each as it is on the topic, one a line.")
def predictions(
    target: Target,
    streams: tuple[str, ...],
    last: int | None,
    once: bool,
    as_json: bool,
) -> None:
    """Show predictions as they come: stream, id, probability, that of the naive learner, step.

    Nothing is committed and nobody is disturbed. An answer that a restarted worker sends again is
    shown again. Ctrl-C ends it.
    """
    from pipeline.kafka.reader import Tail

    topic = target.settings.topic("predictions")
    with closing(Tail(target.client, [topic], last)) as tail:
        if tail.missing:
            raise ClusterError(
                f"the cluster has no {topic}, or this user may not see it; "
                "run: dtgol topics apply, or grant the user Read"
            )
        with suppress(KeyboardInterrupt):
            for record in tail.catch_up(CATCH_UP_S):
                _show(record, streams, as_json)
            while not once:
                for record in tail.poll(POLL_S):
                    _show(record, streams, as_json)


def _show(record: "Record", streams: tuple[str, ...], as_json: bool) -> None:
    from topics.codec import read_prediction
    from topics.reasons import Rejection

    prediction = read_prediction(record.value)
    if isinstance(prediction, Rejection):
        where = f"partition {record.partition}, offset {record.offset}"
        click.echo(f"no prediction at {where}: {prediction.reason}", err=True)
    elif not streams or prediction.stream in streams:
        if as_json:
            click.echo(record.value)
            return
        repeat = "  repeat" if prediction.repeat else ""
        click.echo(
            f"{prediction.stream}  {prediction.id}  p {prediction.p:.4f}  "
            f"naive {prediction.naive:.4f}  step {prediction.step}{repeat}"
        )
