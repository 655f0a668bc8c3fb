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
    Margins,
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
    for now, before in zip(found, plan["slots"], strict=True):
        assert now == pytest.approx(before, rel=0.01)


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


def test_what_is_lost_is_missed_though_a_nic_goes_on_of_which_nothing_arrives() -> None:
    plan = pair("drain", (0, 0.0, 10 * SLOT_S), (1, 0.0, 10 * SLOT_S))
    plan["owed"] = [
        {"at_s": 0.0, "bytes": 50 * BYTES, "ends": [["0.0", "1.0"]]},
        {"at_s": 0.02, "bytes": BYTES, "ends": [["0.1", "1.1"]]},
    ]
    with lit_again(plan) as lit:
        lit.wire.dead.add("0.0")
        lit.wire.loses = True
        lit.run(0.02 + BYTES * 8 / RATE_BPS)
        lit.wire.loses = False
        (arrival,) = lit.run(SLOT_S)
        assert arrival.message == 1


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


def test_a_message_that_is_posted_in_a_slot_goes_in_what_is_left_of_it() -> None:
    plan = pair("drain", (0, 0.0, SLOT_S))
    plan["owed"][0]["at_s"] = SLOT_S / 2
    with lit_again(plan) as lit:
        assert lit.run(SLOT_S - GUARD_S)


def test_who_cuts_sends_again_what_the_same_circuit_lost_between_two_slots() -> None:
    with lit_again(pair("cut", (0, 0.0, 0.008), (0, 0.008, None), (0, 0.05, 0.05 + SLOT_S))) as lit:
        assert not lit.run(0.05)
        assert lit.run(BYTES * 8 / RATE_BPS + LANDED_S)
        lit.lanes.end()
        assert [slot.lost_bytes > 0 for slot in lit.lanes.slots] == [True, False]


def test_a_circuit_that_is_kept_carries_on_between_two_slots() -> None:
    plan = pair("drain", (0, 0.0, 0.012), (0, 0.05, 0.05 + SLOT_S))
    kept = Light(at_s=0.012, ocs="ocs0", outputs={"0.0": "1.0"}, until_s=None, ended=False)
    plan["light"].insert(1, kept)
    with lit_again(plan) as lit:
        assert lit.run(0.05)


def test_what_was_bound_to_a_lane_and_not_sent_goes_over_another_ocs_when_light_turns() -> None:
    plan = pair("drain", (0, 0.0, 0.02), (0, 0.02, None), (1, 0.05, 0.05 + SLOT_S))
    plan["light"].append(Light(at_s=0.05, ocs="ocs0", outputs={}, until_s=0.05 + SLOT_S, ended=False))
    with lit_again(plan) as lit:
        lit.wire.is_full = True
        lit.run(0.02)
        lit.wire.is_full = False
        assert lit.run(SLOT_S)


def test_nothing_is_sent_over_an_ocs_that_has_ended() -> None:
    plan = pair("pause", (0, 0.0, SLOT_S))
    plan["light"].append(Light(at_s=0.008, ocs="ocs0", outputs={}, until_s=None, ended=True))
    with lit_again(plan) as lit:
        lit.run(SLOT_S)
        assert not lit.lanes.busy
        lit.lanes.end()
        (slot,) = lit.lanes.slots
        assert slot.until_s == pytest.approx(0.008)
        assert 0 < slot.delivered_bytes == slot.sent_bytes - slot.lost_bytes < slot.sent_bytes < BYTES


def test_the_end_counts_as_lost_what_is_on_its_way() -> None:
    with lit_again(pair("pause", (0, 0.0, SLOT_S))) as lit:
        lit.wire.loses = True
        lit.run(SLOT_S / 2)
        lit.lanes.end()
        (slot,) = lit.lanes.slots
        assert (slot.sent_bytes, slot.delivered_bytes, slot.lost_bytes) == (BYTES, 0, BYTES)


def test_circuits_are_to_be_lit_for_what_a_message_lacks_and_a_packet() -> None:
    with lit_again(pair("drain", (0, 0.0, 0.008), (1, 0.05, 0.05 + SLOT_S))) as lit:
        lit.run(0.03)
        assert lit.lanes.lacking(0) == lit.lanes.missing_bytes + slot_packet_bytes(RATE_BPS)
        lit.run(0.05)
        assert lit.lanes.lacking(0) == 0


def test_a_message_that_is_taken_back_is_sent_no_more_and_others_posted_with_it_are() -> None:
    plan = pair("drain", (0, 0.0, SLOT_S))
    plan["owed"] *= 2
    with lit_again(plan) as lit:
        lit.run(0.005)
        assert lit.lanes.missing_bytes == 2 * BYTES - lit.lanes.delivered[1]
        carried, left = _of(lit.lanes.stop(0))
        assert (carried + left, lit.lanes.missing_bytes) == (BYTES, BYTES + carried - lit.lanes.delivered[1])
        (arrival,) = lit.run(SLOT_S)
        assert (arrival.message, lit.lanes.delivered[1]) == (1, BYTES + carried)


def test_a_slot_carries_what_its_nics_send_at_the_rates_that_they_have_now() -> None:
    plan = pair("drain", (0, 0.0, SLOT_S))
    plan["owed"][0]["bytes"] *= 10
    with lit_again(plan) as lit:
        lit.run(0.1 * SLOT_S)
        plan["rate_bps"] = RATE_BPS / 4
        lit.lanes.rates_changed()
        lit.run(SLOT_S)
        lit.lanes.end()
        whole = (0.1 + 0.9 / 4) * SLOT_S * RATE_BPS / 8
        assert lit.lanes.slots[0].sent_bytes == pytest.approx(whole, rel=0.1)


@pytest.mark.parametrize(("meeting", "longer_s"), [("drain", 0.005), ("pause", 0.003), ("cut", 0.003)])
def test_a_slot_is_longer_by_the_guard_where_senders_drain(meeting: Meeting, longer_s: float) -> None:
    assert Margins(guard_s=0.002, start_s=0.003).slot_s(meeting) == longer_s


def _of(parts: Sequence[Left]) -> tuple[int, int]:
    return sum(part.carried for part in parts), sum(part.left for part in parts)


@pytest.mark.parametrize(
    ("rate_bps", "mtu", "payload"),
    [(1e5, 9000, 256), (20e6, 9000, 4958), (20e6, 1500, 1472), (1e9, 9000, 8972)],
)
def test_a_datagram_takes_2_ms_within_the_mtu_and_its_headers_are_counted(
    rate_bps: float, mtu: int, payload: int
) -> None:
    """The headers are Ethernet's 14 bytes, IP's 20 and UDP's 8."""
    assert slot_packet_bytes(rate_bps, mtu) == payload
    assert header_share(rate_bps, mtu) == pytest.approx((payload + 42) / payload)
