"""Bundles packed by hand, read back by the OpenFlow library."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from controller.app.openflow import error_text
from controller.circuits.bundles import coming, committed, discarded, going
from controller.circuits.circuits import Pair

parser = pytest.importorskip("os_ken.ofproto.ofproto_v1_3_parser", reason="os-ken is not installed")
ofproto_parser = pytest.importorskip("os_ken.ofproto.ofproto_parser")
ofproto = pytest.importorskip("os_ken.ofproto.ofproto_v1_3")

OPEN, COMMIT, DISCARD = 0, 4, 6
Told = tuple[str, int | None, int | None]


class Switch:
    """What the library's parser wants to know of a switch."""

    ofproto, ofproto_parser = ofproto, parser


def messages(data: bytes) -> Iterator[bytes]:
    """Yield the messages of a stream."""
    while data:
        length = ofproto_parser.header(data)[2]
        yield data[:length]
        data = data[length:]


def told(message: bytes) -> Told:
    """Return what a message says: its kind, and a circuit's or a bundle's numbers."""
    read = parser.msg_parser(Switch, *ofproto_parser.header(message), message)
    if isinstance(read, parser.ONFBundleCtrlMsg):
        return "control", read.bundle_id, read.type
    if isinstance(read, parser.OFPFlowMod):
        assert (read.cookie, read.priority, read.table_id) == (1, 100, 0)
        if read.command == ofproto.OFPFC_DELETE:
            assert read.cookie_mask == 2**64 - 1
            return "all go", None, None
        actions = [action for each in read.instructions for action in each.actions]
        kind = {ofproto.OFPFC_ADD: "comes", ofproto.OFPFC_DELETE_STRICT: "goes"}[read.command]
        return kind, read.match["in_port"] - 1, actions[0].port - 1 if actions else None
    assert read.exp_type == 2301
    return told(message[24:])


@pytest.mark.parametrize(
    ("gone", "kept", "expected"),
    [
        ([(0, 1), (2, 3)], [], [("all go", None, None)]),
        ([(0, 1)], [(2, 3)], [("control", 7, OPEN), ("goes", 0, None), ("control", 7, COMMIT)]),
        (
            [(0, 1), (4, 5)],
            [(2, 3)],
            [("control", 7, OPEN), ("all go", None, None), ("comes", 2, 3), ("control", 7, COMMIT)],
        ),
    ],
)
def test_circuits_go_at_once_in_few_messages(
    gone: list[Pair], kept: list[Pair], expected: list[Told]
) -> None:
    assert list(map(told, messages(going(7, gone, kept)))) == expected


def test_circuits_come_ahead_of_time_and_are_put_in_force_by_one_message() -> None:
    data = coming(9, [(0, 1), (2, 0)]) + committed(9) + discarded(9)
    assert list(map(told, messages(data))) == [
        ("control", 9, OPEN),
        ("comes", 0, 1),
        ("comes", 2, 0),
        ("control", 9, COMMIT),
        ("control", 9, DISCARD),
    ]


def test_what_is_refused_of_a_bundle_is_told_by_its_name() -> None:
    error = SimpleNamespace(type=ofproto.OFPET_EXPERIMENTER, code=None, exp_type=2302)
    assert error_text(error) == "OFPET_EXPERIMENTER(65535), ONFERR_ET_BAD_ID"
