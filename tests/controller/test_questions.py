"""Questions to switches that nobody waits for any more."""

import gc
import weakref

import pytest

from controller.app import questions as module
from controller.app.questions import Question, Questions
from topologies.errors import NetworkError


class Silent:
    """A connection to a switch that never answers."""

    id = 1

    def set_xid(self, _request: object) -> int:
        """Number a request."""
        return 7

    def send_msg(self, _request: object) -> None:
        """Send a request to nobody."""


def test_a_question_that_was_given_up_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.0)
    questions = Questions()
    question = Question("leaf0", Silent(), lambda _datapath: "all rules")
    questions.send(question)
    with pytest.raises(NetworkError, match="switch leaf0 did not answer"):
        question.answer()
    kept = weakref.ref(question)
    del question
    gc.collect()
    assert kept() is None


def test_a_question_over_a_connection_that_has_ended_is_answered() -> None:
    questions, connection = Questions(), Silent()
    question = Question("leaf0", connection, lambda _datapath: "all rules")
    questions.send(question)
    questions.drop(connection)
    with pytest.raises(NetworkError, match="switch leaf0 has gone"):
        question.answer()
