"""Whether anybody is working: the live members of each consumer group."""

import time
from collections.abc import Iterator, Sequence

from confluent_kafka import KafkaError, KafkaException

from pipeline.kafka.clients import ClientSettings, MonitoredAdmin
from pipeline.ops.doctor.findings import Finding, fine, note, problem

ANSWER_S = 10.0
AGAIN_S = 0.3
_NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


def check_members(client: ClientSettings, groups: Sequence[str]) -> Iterator[Finding]:
    """Each group must have a member: without one nothing is answered, or nothing is scored."""
    admin = MonitoredAdmin(client)
    for group in groups:
        check, role = f"members of {group}", group.rpartition("-")[2]
        try:
            members = _members(admin, group)
        except KafkaException as error:
            yield note(check, f"could not be asked: {error.args[0].name()}")
        except TimeoutError:
            yield note(check, f"no answer within {ANSWER_S:.0f} s")
        else:
            if members:
                yield fine(check, f"{members}")
            else:
                yield problem(check, f"no {role} is running", f"start one: dtgol {role}")


def _members(admin: MonitoredAdmin, group: str) -> int:
    """How many members a group has; asked again while its coordinator is not there yet."""
    until = time.monotonic() + ANSWER_S
    while True:
        asked = admin.describe_consumer_groups([group], request_timeout=ANSWER_S / 2)
        try:
            return len(asked[group].result(ANSWER_S).members)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                return 0  # there was never such a group
            if code not in _NOT_YET or time.monotonic() > until:
                raise
        time.sleep(AGAIN_S)
