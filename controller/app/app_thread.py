"""The app's one thread, as other threads see it."""

from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from topologies.errors import NetworkError

ANSWER_S = 60.0
"""How long an answer may take: computing the rules of 128 servers x 8 rails keeps the thread for seconds."""

Answer = TypeVar("Answer")
Work = Callable[[], None]


class AppThread:
    """Has the app's thread run pieces of work, so that all state of the app has one owner and no lock.

    Parameters
    ----------
    post
        Puts a piece of work behind what the thread has to do already; it may wait for room, so it is
        not for the app's thread itself.
    """

    def __init__(self, post: Callable[[Work], None]) -> None:
        self.post = post

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Return what a question returns on the app's thread; raise what it raises there.

        Raises
        ------
        NetworkError
            If the thread does not answer within `ANSWER_S`.
        """
        answer: Future[Answer] = Future()

        def work() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        self.post(work)
        if not wait([answer], ANSWER_S).done:
            raise NetworkError(f"the controller did not answer within {ANSWER_S:g} s")
        return answer.result()
