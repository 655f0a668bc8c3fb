"""Questions to switches that other threads ask through the app's thread."""

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from weakref import WeakValueDictionary

from controller.app.openflow import Datapath, Message, more_follows
from topologies.errors import NetworkError

ANSWER_S = 5.0
"""How long a switch may take to answer."""


@dataclass(eq=False)
class Question:
    """A request to a switch, and a place for the answer."""

    switch: str
    """The switch's name."""
    datapath: Datapath
    """Its connection."""
    request: Callable[[Datapath], Message]
    """What makes the message."""
    answers: SimpleQueue[Message | NetworkError] = field(default_factory=SimpleQueue)
    """The parts of the answer, or why there is none."""

    def answer(self) -> list[Message]:
        """Wait for the answer and return the parts of its body; on the thread that asks.

        Raises
        ------
        NetworkError
            If the switch refuses, goes away or is silent.
        """
        body: list[Message] = []
        while True:
            try:
                answer = self.answers.get(timeout=ANSWER_S)
            except Empty:
                raise NetworkError(f"switch {self.switch} did not answer in {ANSWER_S:g} s") from None
            if isinstance(answer, NetworkError):
                raise answer
            body += answer.body if isinstance(answer.body, list) else [answer.body]
            if not more_follows(answer):
                return body


class Questions:
    """The questions that are not answered yet; every method is for the app's thread."""

    def __init__(self) -> None:
        # The thread that asks holds its question: when it gives up, the entry goes with the question.
        self._open: WeakValueDictionary[tuple[int, int], Question] = WeakValueDictionary()

    def send(self, question: Question) -> None:
        """Send a question, and keep it open until it is answered or its thread gives up."""
        request = question.request(question.datapath)
        transaction = question.datapath.set_xid(request)
        question.datapath.send_msg(request)
        self._open[question.datapath.id, transaction] = question

    def take(self, answer: Message) -> None:
        """Hand an answer, or one of its parts, to the question that it is for."""
        key = answer.datapath.id, answer.xid
        question = self._open.get(key)
        if question:
            question.answers.put(answer)
            if not more_follows(answer):
                del self._open[key]

    def refuse(self, error: Message, sentence: str) -> bool:
        """Answer a question with the switch's refusal; return whether it was a question."""
        question = self._open.pop((error.datapath.id, error.xid), None)
        if question:
            question.answers.put(NetworkError(sentence))
        return question is not None

    def drop(self, datapath: Datapath) -> None:
        """Answer all questions over a connection that has ended."""
        for key, question in list(self._open.items()):
            if question.datapath is datapath:
                del self._open[key]
                question.answers.put(NetworkError(f"switch {question.switch} has gone"))
