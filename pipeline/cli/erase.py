"""`dtgol erase`: make learners forget an instance, and say where else it stands and until when."""

from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import Target, cluster_options, echo_json, json_option
from pipeline.cli.progress import progress


@click.command(epilog=help_line("erase"))
@cluster_options
@click.option("--stream", default="default", show_default=True, help="The stream of the instance.")
@click.option("--id", "id", required=True, help="The id of the instance.")
@click.option("--dry-run", is_flag=True, help="Only say where it stands.")
@json_option
def erase(target: Target, stream: str, id: str, dry_run: bool, as_json: bool) -> None:
    """Forget an instance; cannot be undone.

    A request goes to every partition of the labels topic. Learners drop its vectors, its id and its
    held label, evaluators its predictions; from the third snapshot after that on no snapshot has
    them, archived ones excepted. What was learnt from it stays in the weights. Kafka keeps the
    records themselves until their retention has passed: the list says how long. Records that
    cannot be read, such as truncated dead letters, are listed where they may hold it. The
    procedure for all places is in docs/guide-operations.md.
    """
    from pipeline.ops.erase import TOPICS, find_traces, request_erasure

    settings = target.settings
    topics = {name: settings.topic(name) for name in TOPICS}
    reading = partial(progress, what="records")
    traces = find_traces(target.client, topics, stream, id, reading)
    sent = 0 if dry_run else request_erasure(target.client, topics["labels"], stream, id)
    if as_json:
        echo_json({"requests": sent, "topics": [asdict(each) for each in traces]})
        return
    for each in traces:
        until = "for ever" if each.gone_ms is None else f"until {_day(each.gone_ms)}"
        maybe = f", {each.maybe} more that cannot be read and may hold it" if each.maybe else ""
        stays = f", {until}" if each.records or each.maybe else ""
        click.echo(f"{each.topic:14} {each.records} records{maybe}{stays}")
    click.echo(
        "nothing was sent" if dry_run else f"learners and evaluators were asked: {sent} requests"
    )


def _day(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
