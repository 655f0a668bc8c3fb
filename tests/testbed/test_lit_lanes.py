"""Messages over slots, by a test's clock: each slot carries what it did; what missed its own goes later."""

from collections.abc import Sequence

import pytest

from testbed.core.backend import Left
from tests.testbed.recorded_slots import Light, Plan, lit_again, plans
from traffic.transports.nic_sender import PLACED_PACKETS
from traffic.transports.slots import (
    AHEAD_S,
    GUARD_S,
    LANDED_S,
    SLOT_HEADER_BYTES,
    Meeting,
    header_share,
    slot_packet_bytes,
)

RATE_BPS = 20e6
SLOT_S = 0.1
BYTES = 40_000
"""16 ms at a NIC's rate, of which what leaves in a turn is a part."""
OFTEN = "less, 2 OCSes, cut", "spectra, 2 OCSes, pause", "bvn, 4 OCSes, drain"
"""The plans that are lit again in each run of the tests."""
AHEAD_PACKETS = 4
"""Circuits that are kept have this much on its way from one slot to the next."""


def each_plan() -> list[object]:
    """Return the plans that were recorded, most of them for long runs of the tests."""
    return [
        pytest.param(plan, id=plan["name"], marks=[] if plan["name"] in OFTEN else pytest.mark.slow)
        for plan in plans()
    ]


@pytest.mark.parametrize("plan", each_plan())
def test_each_slot_carries_what_it_did(plan: Plan) -> None:
    with lit_again(plan) as lit:
        lit.run()
        lit.lanes.end()
        found = [(slot.sent_bytes, slot.delivered_bytes, slot.lost_bytes) for slot in lit.lanes.slots]
    assert len(found) == len(plan["slots"])
    ahead = AHEAD_PACKETS * slot_packet_bytes(plan["rate_bps"], plan["mtu"]) * ("partial" in plan["name"])
    for now, before in zip(found, plan["slots"], strict=True):
        assert now == pytest.approx(before, rel=0.01, abs=2 * ahead)


def pair(meeting: Meeting, *light: tuple[int, float, float | None], ends_s: float = 2 * SLOT_S) -> Plan:
    """Return a plan of two servers: which OCS is lit when, and until when."""
    return Plan(
        name="a pair",
        ends_s=ends_s,
        ocs_of={f"{server}.{nic}": f"ocs{nic}" for server in (0, 1) for nic in (0, 1)},
        rate_bps=RATE_BPS,
        meeting=meeting,
        mtu=9000,
        guard_s=GUARD_S,
        owed=[{"at_s": 0.0, "bytes": BYTES, "ends": [["0.0", "1.0"], ["0.1", "1.1"]]}],
        light=[_news(*each) for each in light],
        slots=[],
    )


def _news(ocs: int, at_s: float, until_s: float | None) -> Light:
    outputs = {} if until_s is None else {f"0.{ocs}": f"1.{ocs}"}
    return Light(at_s=at_s, ocs=f"ocs{ocs}", outputs=outputs, until_s=until_s, ended=False)


def test_what_missed_its_slot_goes_in_the_pairs_next_one_of_another_ocs() -> None:
    with lit_again(pair("drain", (0, 0.0, 0.02), (0, 0.02, None), (1, 0.02, 0.02 + SLOT_S))) as lit:
        lit.wire.loses = True  # the first OCS shows the pair nothing any more
        assert not lit.run(0.02)
        lit.wire.loses = False
        (arrival,) = lit.run(SLOT_S - GUARD_S)
        assert arrival.message == 0
        assert (lit.lanes.missing_bytes, lit.lanes.busy) == (0, False)


def test_what_is_lost_is_sent_again_in_what_is_left_of_its_slot() -> None:
    with lit_again(pair("drain", (0, 0.0, SLOT_S))) as lit:
        lit.wire.loses = True
        assert not lit.run(BYTES * 8 / RATE_BPS)
        assert lit.lanes.busy
        lit.wire.loses = False
        assert lit.run(SLOT_S / 2)
        assert not lit.lanes.missing_bytes


def test_what_waits_to_be_read_when_light_turns_was_not_lost() -> None:
    with lit_again(pair("drain", (0, 0.0, SLOT_S))) as lit:
        lit.run(AHEAD_S)
        lit.clock.now += SLOT_S  # the machine was busy meanwhile
        lit.wire.turn()
        lit.lanes.lit("ocs0", {}, lit.clock.now + SLOT_S, lit.clock.now)
        slot = lit.lanes.slots[0]
        assert (slot.delivered_bytes, slot.lost_bytes) == (slot.sent_bytes, 0)


def test_what_a_nic_has_yet_to_send_is_not_lost_though_it_is_slower_than_known() -> None:
    with lit_again(pair("drain", (0, 0.0, 10 * SLOT_S), ends_s=10 * SLOT_S)) as lit:
        lit.wire.slower["0.0"] = 10
        assert lit.run()
        lit.lanes.end()
        (slot,) = lit.lanes.slots
        assert (slot.sent_bytes, slot.lost_bytes) == (BYTES, 0)


def test_what_lands_late_by_a_busy_switch_is_sent_again_once_at_most() -> None:
    with lit_again(pair("drain", (0, 0.0, 10 * SLOT_S), ends_s=10 * SLOT_S)) as lit:
        lit.wire.lands_s = 2 * LANDED_S
        assert lit.run()
        lit.lanes.end()
        (slot,) = lit.lanes.slots
        assert (slot.delivered_bytes, slot.lost_bytes <= BYTES) == (BYTES, True)


def test_what_a_nic_has_no_room_for_goes_by_another() -> None:
    plan = pair("drain", (0, 0.0, 2 * SLOT_S), (1, 0.0, 2 * SLOT_S))
    plan["owed"][0]["bytes"] = 10 * BYTES
    with lit_again(plan) as lit:
        lit.wire.slower["0.0"] = 1000
        lit.run()
        most = (PLACED_PACKETS + 1) * slot_packet_bytes(RATE_BPS)
        assert lit.lanes.missing_bytes <= most


@pytest.mark.parametrize("meeting", ["pause", "cut"])
def test_who_does_not_drain_loses_it_until_other_circuits_are_lit(meeting: Meeting) -> None:
    with lit_again(pair(meeting, (0, 0.0, SLOT_S), (0, SLOT_S, None), (1, SLOT_S, 2 * SLOT_S))) as lit:
        lit.wire.loses = True
        assert not lit.run(SLOT_S - 2 * LANDED_S)
        lit.wire.loses = False
        assert not lit.run(LANDED_S)
        assert lit.lanes.missing_bytes == BYTES


def test_what_no_lit_circuit_can_carry_keeps_no_one_busy() -> None:
    with lit_again(pair("drain", (0, 0.0, 0.008), (1, 0.05, 0.05 + SLOT_S))) as lit:
        lit.run(0.03)
        assert 0 < lit.lanes.missing_bytes < BYTES
        assert not lit.lanes.busy
        lit.run(0.022)
        assert lit.lanes.busy
        lit.run(LANDED_S)
        assert (lit.lanes.missing_bytes, lit.lanes.busy) == (0, False)


@pytest.mark.parametrize("meeting", ["drain", "pause", "cut"])
def test_what_a_message_is_taken_back_of_is_what_did_not_arrive(meeting: Meeting) -> None:
    with lit_again(pair(meeting, (0, 0.0, 0.012), (0, 0.012, None))) as lit:
        lit.run(SLOT_S)
        carried, left = _of(lit.lanes.stop(0))
        assert carried == lit.lanes.delivered[1]
        assert (carried + left, left > 0) == (BYTES, True)
        assert not lit.lanes.owes


def _of(parts: Sequence[Left]) -> tuple[int, int]:
    return sum(part.carried for part in parts), sum(part.left for part in parts)


@pytest.mark.parametrize("rate_bps", [1e5, 20e6, 20e6 + 1234, 1e9])
def test_headers_are_counted_for_the_datagrams_that_are_sent(rate_bps: float) -> None:
    assert header_share(rate_bps) == 1 + SLOT_HEADER_BYTES / slot_packet_bytes(rate_bps)
    assert slot_packet_bytes(20e6) == int(20e6 / 8 * 0.002 - SLOT_HEADER_BYTES)
