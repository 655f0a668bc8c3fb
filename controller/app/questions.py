"""Questions to switches that other threads ask through the app's thread."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from weakref import WeakValueDictionary

from controller.app.openflow import Datapath, Message, more_follows
from topologies.errors import NetworkError

ANSWER_S = 5.0
"""How long a switch may take to answer."""


class Question:
    """A request to a switch, and a place for the answer.

    Parameters
    ----------
    switch
        The switch's name.
    datapath
        Its connection.
    request
        What makes the message.
    """

    def __init__(self, switch: str, datapath: Datapath, request: Callable[[Datapath], Message]) -> None:
        self.switch, self.datapath = switch, datapath
        self._request = request
        self._answers: SimpleQueue[Message | NetworkError] = SimpleQueue()

    def send(self) -> int:
        """Send the request and return its transaction; on the app's thread."""
        request = self._request(self.datapath)
        transaction: int = self.datapath.set_xid(request)
        self.datapath.send_msg(request)
        return transaction

    def put(self, answer: Message | NetworkError) -> None:
        """Give an answer, or one of its parts; on the app's thread."""
        self._answers.put(answer)

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
                answer = self._answers.get(timeout=ANSWER_S)
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
        self._open[question.datapath.id, question.send()] = question

    def take(self, answer: Message) -> None:
        """Hand an answer, or one of its parts, to the question that it is for."""
        key = answer.datapath.id, answer.xid
        question = self._open.get(key)
        if question:
            question.put(answer)
            if not more_follows(answer):
                del self._open[key]

    def refuse(self, error: Message, sentence: str) -> bool:
        """Answer a question with the switch's refusal; return whether it was a question."""
        question = self._open.pop((error.datapath.id, error.xid), None)
        if question:
            question.put(NetworkError(sentence))
        return question is not None

    def drop(self, datapath: Datapath) -> None:
        """Answer all questions over a connection that has ended."""
        for key, question in list(self._open.items()):
            if question.datapath is datapath:
                del self._open[key]
                question.put(NetworkError(f"switch {question.switch} has gone"))
