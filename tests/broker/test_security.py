"""TLS, SCRAM, client certificates and ACLs on a real broker: enough rights, and too few.

Every role has a user of its own with exactly the grants of `pipeline.kafka.acls`. Whatever goes
wrong is one sentence, in bounded time, with the documented exit code; no output holds a password.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.client import (
    ClusterError,
    DeliveryError,
    FeatureProducer,
    LabelProducer,
    PredictionConsumer,
)
from pipeline.errors import RefusalError
from pipeline.evaluator import NOTICED, make_evaluator
from pipeline.kafka.acls import ROLES, Grant
from pipeline.sandbox.brokers import Broker, NoBrokerError
from pipeline.settings import Settings, read_settings
from pipeline.worker import StartOptions, make_worker
from tests.support.authority import Authority
from tests.support.forkserver import Command
from tests.support.secure_cluster import ADMIN, MUTUAL, SecureCluster, open_secure_cluster
from tests.support.stage import Process, Stage
from tests.support.waiting import wait_until
from topics.catalog import CATALOG

LIMIT_S = 240.0
"""Everything here takes seconds; a busy machine that compiles the kernels first takes minutes."""
RECORDS = 30
GROUP = "alarms"
USERS = (*ROLES, "stranger")
LOOKS = (
    ("operator", ["watch", "--once", "--json"]),
    ("operator", ["doctor", "--probe", "--json"]),
    ("operator", ["snapshot", "list"]),
    ("operator", ["snapshot", "inspect"]),
    ("operator", ["journal", "replay"]),
    ("operator", ["dead-letters", "list"]),
    ("steward", ["dead-letters", "redrive"]),
)
"""What people do at the side of a running pipeline, each with the rights of its role alone."""
WEB_TOKEN = "web-token-nobody-may-see"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(open_secure_cluster(tmp_path_factory.mktemp("secure"), USERS))
        except NoBrokerError as refusal:
            pytest.skip(f"local: {refusal}")


def grants(role: str) -> list[Grant]:
    """The rights of a role, with the consumer's group as it is named here."""
    return [each._replace(name=GROUP) if each.name == "YOURS" else each for each in ROLES[role]]


@pytest.fixture
def granted(secure: SecureCluster, prefix: str) -> str:
    """A prefix under which every role may do what it must."""
    for role in ROLES:
        secure.grant(role, grants(role), prefix)
    return prefix


@pytest.fixture
def stage(secure: SecureCluster, granted: str, tmp_path: Path) -> Stage:
    """Topics under the prefix, made and read by the super user."""
    client = secure.client(ADMIN)
    return Stage(
        Broker(client.pop("bootstrap.servers"), "local", "", client=client), granted, tmp_path
    )


def options(settings: Mapping[str, str]) -> list[str]:
    return [f"--set={key}={value}" for key, value in settings.items()]


def start(prefix: str, settings: Mapping[str, str], *arguments: str) -> Command:
    """`dtgol …` with these settings, as a user runs it."""
    return Command("pipeline", *arguments, "--prefix", prefix, *options(settings))


class Done:
    """How a command ended; its outputs hold no secret."""

    def __init__(self, secure: SecureCluster, command: Command) -> None:
        done = command.finish(LIMIT_S)
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        assert_no_secret(secure, self.stdout + self.stderr)

    @property
    def sentence(self) -> str:
        """The one line on stderr."""
        (line,) = self.stderr.splitlines()
        return line


def run(secure: SecureCluster, prefix: str, user: str, *arguments: str) -> Done:
    return Done(secure, start(prefix, secure.settings(user), *arguments))


def assert_no_secret(secure: SecureCluster, text: str) -> None:
    for secret in (*secure.passwords.values(), WEB_TOKEN, "PRIVATE KEY"):
        assert secret not in text


def send(client: Mapping[str, Any], prefix: str, first: int, count: int) -> set[str]:
    """Features and, at once, their labels, through the Python client; the ids."""
    ids = {f"id-{number}" for number in range(first, first + count)}
    with FeatureProducer(client, prefix=prefix) as features:
        for number in range(first, first + count):
            features.send(f"id-{number}", {"a": number % 7, "b": "xyz"[number % 3]})
    with LabelProducer(client, prefix=prefix) as labels:
        for number in range(first, first + count):
            labels.send(f"id-{number}", number % 2)
    return ids


def received(client: Mapping[str, Any], prefix: str, ids: set[str], group: str | None) -> None:
    """Wait until the Python client has given out every one of these predictions."""
    group = None if group is None else prefix + group
    with PredictionConsumer(client, prefix=prefix, group=group, from_beginning=True) as predictions:
        missing = set(ids)

        def all_there() -> bool:
            prediction = predictions.poll(1.0)
            if prediction is not None:
                missing.discard(prediction.id)
            return not missing

        wait_until(all_there, "predictions", LIMIT_S)


def scored(process: Process) -> int:
    partitions = process.status()["partitions"].values()
    return sum(
        stream["scored"] for each in partitions for stream in each.get("streams", {}).values()
    )


def saved(process: Process) -> bool:
    return any(each["snapshot"] for each in process.status()["partitions"].values())


def test_every_role_works_with_exactly_its_grants(
    secure: SecureCluster, granted: str, tmp_path: Path
) -> None:
    """Topics, records in, predictions and scores out, snapshots kept, a restart that restores."""
    apply = run(secure, granted, "topics", "topics", "apply", "--partitions", "2")
    assert apply.code == 0, apply.stderr
    assert f"{len(CATALOG)} created" in apply.stdout
    check = run(secure, granted, "topics", "topics", "check")
    assert check.code == 0, check.stderr

    client = secure.client(ADMIN)
    broker = Broker(client.pop("bootstrap.servers"), "local", "", client=client)
    stage = Stage(broker, granted, tmp_path)
    token = tmp_path / "web.token"
    token.write_text(WEB_TOKEN)
    worker = options(secure.settings("worker"))
    evaluator = options(secure.settings("evaluator", "SCRAM-SHA-256"))
    with stage.evaluator(*evaluator) as evaluating:
        with stage.worker(*worker, f"--set=web.token_file={token}") as process:
            wait_until(lambda: process.get("/readyz", WEB_TOKEN)[0] == 200, "readiness", LIMIT_S)
            for page in ("/readyz", "/status", "/metrics"):
                assert process.get(page)[0] == process.get(page, "wrong")[0] == 401
            assert process.get("/livez")[0] == 200
            ids = send(secure.client("producer"), granted, 0, RECORDS)
            received(secure.client("consumer"), granted, ids, GROUP)
            wait_until(lambda: saved(evaluating), "a snapshot", LIMIT_S, evaluating.alive)
        assert process.child.returncode == 0
        with stage.worker(*worker) as process:
            process.await_ready(2)
            restored = process.status()["partitions"].values()
            assert sum(each["snapshot_offset"] for each in restored) > RECORDS
            ids |= send(secure.client("producer"), granted, RECORDS, RECORDS)
            received(secure.client("consumer"), granted, ids, None)
            wait_until(
                lambda: scored(evaluating) == 2 * RECORDS, "scores", LIMIT_S, evaluating.alive
            )
            stage.send("features", b"no JSON")
            stage.flush()
            wait_until(stage.letters, "a dead letter", LIMIT_S, process.alive)
            for user, command in LOOKS:
                done = run(secure, granted, user, *command)
                assert done.code == 0, (command, done.stdout, done.stderr)
            for page in ("/status", "/metrics", "/readyz"):
                assert_no_secret(secure, process.get(page)[1] + evaluating.get(page)[1])
    stage.verify()
    for path in tmp_path.glob("*.log"):
        assert_no_secret(secure, path.read_text())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "stream.csv"
    path.write_text("id,a,label\n0,1,0\n1,2,1\n")
    return path


def commands(table: Path) -> dict[str, list[str]]:
    """Every command that goes to a cluster, by the role that runs it."""
    return {
        "worker": ["worker"],
        "evaluator": ["evaluator"],
        "topics": ["topics", "apply"],
        "producer": ["produce", str(table)],
        "operator": ["watch", "--once"],
        "doctor": ["doctor"],
    }


def wrong_password(secure: SecureCluster, user: str, folder: Path) -> dict[str, str]:
    path = folder / f"{uuid.uuid4().hex}.password"
    path.write_text(secure.passwords[ADMIN])  # a real one, of somebody else: it must not show
    return secure.settings(user) | {"security.password_file": str(path)}


def unknown_user(secure: SecureCluster, user: str, folder: Path) -> dict[str, str]:
    return secure.settings(user) | {"security.username": "nobody"}


def untrusted_authority(secure: SecureCluster, user: str, folder: Path) -> dict[str, str]:
    return secure.settings(user) | {
        "security.ca_file": str(Authority(folder / uuid.uuid4().hex).ca)
    }


def wrong_host_name(secure: SecureCluster, user: str, folder: Path) -> dict[str, str]:
    named = secure.bootstrap.replace("127.0.0.1", "localhost")
    return secure.settings(user) | {"kafka.bootstrap_servers": named}


def plain_on_tls(secure: SecureCluster, user: str, folder: Path) -> dict[str, str]:
    return {"kafka.bootstrap_servers": secure.bootstrap}


def no_certificate(secure: SecureCluster, user: str, folder: Path) -> dict[str, str]:
    ours = ("security.certificate_file", "security.key_file")
    return {key: value for key, value in secure.mutual(user).items() if key not in ours}


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (wrong_password, "does not let us in"),
        (unknown_user, "does not let us in"),
        (untrusted_authority, "not one that we trust"),
        (wrong_host_name, "not one that we trust"),
        (plain_on_tls, "does not answer"),
        (no_certificate, "does not take our certificate"),
    ],
)
def test_who_is_not_let_in_is_told_so_in_one_sentence(
    secure: SecureCluster, prefix: str, tmp_path: Path, table: Path, fault: Any, sentence: str
) -> None:
    started = {}
    for role, command in commands(table).items():
        user = role if role in ROLES else "operator"
        started[role] = start(prefix, fault(secure, user, tmp_path), *command)
    for role, child in started.items():
        done = Done(secure, child)
        # Nobody there is for the supervisor of a process to try again; all else is for people.
        again = role in ("worker", "evaluator") and sentence == "does not answer"
        assert done.code == (1 if again else 2), (role, done.stderr)
        assert done.sentence.startswith("Error: "), role
        assert sentence in done.sentence, role


def settings_of(secure: SecureCluster, user: str, prefix: str) -> Settings:
    return read_settings({}, None, secure.settings(user) | {"kafka.prefix": prefix})


@pytest.mark.parametrize("role", ["worker", "evaluator"])
def test_each_missing_right_is_named_at_the_start(
    secure: SecureCluster, stage: Stage, role: str
) -> None:
    settings = settings_of(secure, role, stage.prefix)
    make: Any = make_evaluator
    if role == "worker":
        make = partial(make_worker, options=StartOptions())
    needless = NOTICED if role == "evaluator" else ("events",)  # for the live page alone
    for grant in grants(role):
        if grant.name in needless:
            continue
        secure.revoke(role, [grant], stage.prefix)
        with pytest.raises(RefusalError) as refusal:
            make(settings)
        secure.grant(role, [grant], stage.prefix)
        lacking = grant._replace(name=stage.prefix + grant.name)
        # A topic with no other right that lets it be seen is hidden: all rights to it are named.
        assert str(refusal.value).startswith("this user may not ")
        assert str(lacking) in str(refusal.value)


def test_whoever_has_no_rights_is_told_which(
    secure: SecureCluster, prefix: str, table: Path
) -> None:
    started = {
        role: start(prefix, secure.settings("stranger"), *command)
        for role, command in commands(table).items()
    }
    ended = {role: Done(secure, child) for role, child in started.items()}
    doctor = ended.pop("doctor")  # it goes on to the end, and says it among its findings
    assert (doctor.code, doctor.stderr) == (1, "")
    assert "this user may not see them" in doctor.stdout
    for role, done in ended.items():
        assert done.code == 2, (role, done.stderr)
        assert "grant" in done.sentence, role
    assert f"Read on group {prefix}dtgol-worker" in ended["worker"].sentence
    assert f"Describe on topic {prefix}journal" in ended["evaluator"].sentence


def test_a_producer_that_may_not_write_is_told_so(secure: SecureCluster, stage: Stage) -> None:
    secure.grant("stranger", [Grant("topic", "features", "Describe")], stage.prefix)
    with pytest.raises(DeliveryError, match="may not write; grant it Write"):
        send(secure.client("stranger"), stage.prefix, 0, 1)


def test_a_consumer_without_its_rights_is_told_so(secure: SecureCluster, stage: Stage) -> None:
    client, (topic, group) = secure.client("consumer"), grants("consumer")
    secure.revoke("consumer", [group], stage.prefix)
    with pytest.raises(ClusterError, match=r"Group authorization failed.*docs/security\.md"):
        received(client, stage.prefix, {"any"}, GROUP)
    secure.grant("consumer", [Grant("topic", "predictions", "Describe")], stage.prefix)
    secure.revoke("consumer", [topic], stage.prefix)
    with pytest.raises(ClusterError, match=r"opic authorization failed.*docs/security\.md"):
        received(client, stage.prefix, {"any"}, None)


def test_client_certificates_are_as_good_as_passwords(
    secure: SecureCluster, stage: Stage, table: Path
) -> None:
    address = ("--bootstrap", secure.cluster.bootstrap(MUTUAL.name))
    with stage.worker(*options(secure.mutual("worker")), *address) as process:
        process.await_ready(2)
        produce = ("produce", str(table), "--id", "id")
        sent = Done(secure, start(stage.prefix, secure.mutual("producer"), *produce))
        assert sent.code == 0, sent.stderr
        stage.await_answers({"0", "1"}, process)
    check = start(stage.prefix, secure.mutual("topics"), "topics", "check")
    assert Done(secure, check).code == 0
    assert_no_secret(secure, process.log_path.read_text())


def last_line(secure: SecureCluster, process: Process) -> str:
    """The last line of a log; no line holds a secret."""
    text = process.log_path.read_text()
    assert_no_secret(secure, text)
    return text.splitlines()[-1]


@pytest.mark.parametrize("role", ["worker", "evaluator"])
def test_a_password_that_is_changed_under_a_running_process_ends_it_with_a_sentence(
    secure: SecureCluster, stage: Stage, role: str
) -> None:
    with stage.process(role, *options(secure.settings(role))) as process:
        process.await_ready(2)
        secure.set_password(role, "another")
        try:
            code = process.child.wait(LIMIT_S)
        finally:
            secure.set_password(role, secure.passwords[role])
    assert code == 1
    assert "CRITICAL" in last_line(secure, process)
    assert "does not let us in" in last_line(secure, process)


@pytest.mark.parametrize(
    ("role", "grant"),
    [
        ("worker", Grant("topic", "features", "Read")),
        ("worker", Grant("topic", "predictions", "Write")),
        ("worker", Grant("group", "dtgol-worker", "Read")),
        # It has nothing to commit, so only its heartbeats are refused.
        ("evaluator", Grant("group", "dtgol-evaluator", "Read")),
    ],
    ids=str,
)
def test_a_right_that_is_taken_from_a_running_process_ends_it_with_a_sentence(
    secure: SecureCluster, stage: Stage, role: str, grant: Grant
) -> None:
    with stage.process(role, *options(secure.settings(role))) as process:
        process.await_ready(2)
        secure.revoke(role, [grant], stage.prefix)
        if grant.resource == "topic" and grant.operation == "Write":
            send(secure.client("producer"), stage.prefix, 0, 2)
        code = process.child.wait(LIMIT_S)
    # The consumer ends it with 1; a restore that is under way may be first, and refuses with 2.
    assert code in (1, 2)
    assert "CRITICAL" in last_line(secure, process)
    assert "grant this user what docs/security.md lists" in last_line(secure, process)
