"""The list of rights: the docs show it, and it names what there is."""

from pathlib import Path

from pipeline.evaluator import NOTICED
from pipeline.evaluator import TOPICS as EVALUATOR_TOPICS
from pipeline.kafka.acls import ROLES, USES, page
from pipeline.settings import Settings
from pipeline.worker import TOPICS as WORKER_TOPICS
from topics.catalog import CATALOG

DOCS = Path(__file__).parents[4] / "docs" / "security.md"


def test_the_docs_show_the_list() -> None:
    shown = DOCS.read_text().partition("<!-- acls -->\n")[2].partition("<!-- /acls -->")[0]
    assert shown == page(), "run: python -m pipeline.kafka.acls, and put it into docs/security.md"


def test_every_role_says_who_uses_it() -> None:
    assert ROLES.keys() == USES.keys()


def test_the_topics_are_those_of_the_catalog_and_the_groups_ours() -> None:
    topics = {topic.name for topic in CATALOG}
    groups = {Settings().group(role) for role in ("worker", "evaluator")}
    for role, grants in ROLES.items():
        named = {each.name for each in grants if each.resource == "topic" and not each.starts}
        assert named <= topics, role
        joined = {each.name for each in grants if each.resource == "group"}
        assert joined <= groups | {"YOURS"}, role
        assert len(grants) == len(set(grants)), role


def test_worker_and_evaluator_have_rights_to_all_they_look_at() -> None:
    """The topics of events, and dead letters for the evaluator, are not needed to start."""
    noticed = {"worker": {"events"}, "evaluator": set(NOTICED)}
    for role, looked_at in (("worker", WORKER_TOPICS), ("evaluator", EVALUATOR_TOPICS)):
        topics = noticed[role].union(looked_at)
        assert {each.name for each in ROLES[role] if each.resource == "topic"} == set(topics)
