"""News of light as the live backend reads it."""

import json
import socket
from pathlib import Path

import pytest

from testbed.live.news import News, NowShown
from topologies.errors import NetworkError

NOTICE = {"ocs": "ocs1", "circuits": [[0, 3]], "until_s": 2.0, "ended": False, "error": "", "missed": 0}


def test_news_is_read_as_it_comes(tmp_path: Path) -> None:
    controller = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with News(tmp_path / "light.sock") as news, controller:
        assert news.read() == []
        for notice in (NOTICE, {**NOTICE, "circuits": [], "until_s": None, "ended": True}):
            controller.sendto(json.dumps(notice).encode(), str(news.path))
        assert news.read() == [NowShown("ocs1", ((0, 3),), 2.0, False), NowShown("ocs1", (), None, True)]


@pytest.mark.parametrize(
    ("notice", "why"), [({"error": "refused"}, "refused"), ({"missed": 3}, "3 notices .* were dropped")]
)
def test_light_that_did_not_come_and_notices_that_were_dropped_are_errors(
    tmp_path: Path, notice: dict[str, object], why: str
) -> None:
    controller = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with News(tmp_path / "light.sock") as news, controller:
        controller.sendto(json.dumps({**NOTICE, **notice}).encode(), str(news.path))
        with pytest.raises(NetworkError, match=why):
            news.read()
