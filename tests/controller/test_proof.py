"""Proof that changes are on the wire, with a switch daemon that is played."""

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from controller.app.app_thread import AppThread
from controller.app.proof import Proof
from tests.controller.fake_daemon import FakeDaemon, fake_daemon, obliging

SECONDS = 30.0


class Asked:
    """A proof, and what it answers, on a thread that is the test's."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.proof = Proof(AppThread(self._work.put))

    def reason(self) -> str:
        """Ask for a proof and return why there is none; empty if there is."""
        reasons: list[str] = []
        self.proof.ask(lambda _now, reason: reasons.append(reason))
        self._work.get(timeout=SECONDS)()
        return reasons[0]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    monkeypatch.setenv("OVS_RUNDIR", str(tmp_path))
    with fake_daemon(tmp_path) as daemon:
        yield daemon


def test_a_proof_empties_the_cache_of_every_datapath(daemon: FakeDaemon) -> None:
    asked = Asked()
    assert (asked.reason(), asked.reason()) == ("", "")
    assert daemon.asked == ["dpctl/dump-dps"] + 2 * ["revalidator/purge", "dpctl/del-flows"]


def test_in_the_kernels_datapath_the_daemons_threads_are_ended_and_nothing_is_purged(
    daemon: FakeDaemon,
) -> None:
    def answers(command: str) -> object:
        both = "netdev@ovs-netdev\nsystem@ovs-system"
        return {"result": both if command == "dpctl/dump-dps" else "megaflows enabled", "error": None}

    daemon.answers = answers
    assert Asked().reason() == ""
    assert daemon.asked == ["dpctl/dump-dps", "upcall/enable-megaflows"]


@pytest.mark.parametrize(
    "answer",
    [
        {"result": None, "error": "unknown command"},
        {"error": None},
        {"result": {"not": "text"}, "error": None},
        ["no", "object"],
        "text",
        7,
    ],
)
def test_an_answer_that_is_no_proof_is_reported_and_the_next_one_proves(
    daemon: FakeDaemon, answer: object
) -> None:
    asked = Asked()
    assert asked.reason() == ""
    daemon.answers = lambda _command: answer
    assert asked.reason().startswith("no proof that changes are on the wire: ")
    daemon.answers = obliging
    assert asked.reason() == "", "the thread that asks has survived"


def test_without_a_switch_daemon_there_is_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVS_RUNDIR", str(tmp_path))
    asked = Asked()
    assert "no control socket" in asked.reason()
    with fake_daemon(tmp_path):
        assert asked.reason() == "", "a daemon that is started later is found"
