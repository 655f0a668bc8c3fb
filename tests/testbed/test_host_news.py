"""News of light and of links are handed on, the newest of each OCS, until the block ends."""

import json
import socket
from pathlib import Path
from queue import SimpleQueue
from threading import active_count

from testbed.network.host_news import HostNews, LitSince, NewsSocket

SECONDS = 10.0


def notice(ocs: str, circuits: list[list[int]], now: float) -> bytes:
    """Return a notice as the controller sends it."""
    news = {"ocs": ocs, "circuits": circuits, "now": now, "until_s": None, "ended": False, "error": ""}
    return json.dumps({**news, "missed": 0}).encode()


def test_what_changes_is_handed_on_and_nothing_is_left(tmp_path: Path) -> None:
    heard: SimpleQueue[HostNews] = SimpleQueue()
    threads = active_count()
    with (
        NewsSocket(tmp_path / "news") as news,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as controller,
    ):
        # Those that come before anybody listens are one piece: only what each OCS lights last counts.
        for message in (("ocs0", [[0, 1]], 1.0), ("ocs1", [[2, 0]], 2.0), ("ocs0", [], 3.0)):
            controller.sendto(notice(*message), str(news.path))
        with news.handed_to(heard.put):
            lit = {"ocs0": LitSince((), 3.0), "ocs1": LitSince(((2, 0),), 2.0)}
            assert heard.get(timeout=SECONDS) == HostNews(lit, links=False)
            controller.sendto(notice("ocs1", [[2, 0], [0, 1]], 4.0), str(news.path))
            assert heard.get(timeout=SECONDS).lit == {"ocs1": LitSince(((2, 0), (0, 1)), 4.0)}
            controller.sendto(b'{"failed_links": ["h0:0 - leaf0:0"], "missed": 0}', str(news.path))
            assert heard.get(timeout=SECONDS) == HostNews({}, links=True)
        assert heard.empty()
    assert active_count() == threads
    assert not list(tmp_path.iterdir())
