"""The pages on trust and on scale: the limits that they print are those of the code."""

import re
from math import inf, isclose

import pytest

from testbed.trust import agreement, calibrate, fidelity, scale, similitude
from testbed.trust.fidelity import CONTROL, DRAINED, LATE_CHOICE, PACKETS, PRESSED, Limit
from tests.docs.pages import DOCS

UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "%": 1e-2}
ROWS: dict[str, Limit | str] = {
    "known-answer traffic takes": CONTROL,
    "share of the control": PRESSED,
    "a sampled link": "the links' rates",
    "packets that switches were too slow": "what switches were too slow",
    "packets that switches dropped": "drops in switches",
    "share of the run": "CPU pressure",
    "CPU time of switches": "CPU of switches",
    "CPU time of the engine": "CPU of the engine",
    "longest time for which switches": "stalls of switches",
    "longest time for which the engine": "stalls of the engine",
    "lateness of the engine": "how late the engine was",
    "the same in packets": "how many packets the engine",
    "the same where packets choose": LATE_CHOICE,
    "time in which NICs had nothing": "for how long the engine was away",
    "a step of the wall clock": "steps of this machine's clock",
    "datagrams lost": DRAINED,
}
"""The limit of each row, by itself or by how its measure is called where it is unknown."""


def text_of(page: str) -> str:
    """Return the text of a page, in one line."""
    return " ".join((DOCS / "explain" / page).read_text().split())


def value(cell: str) -> float:
    """Return the number of a cell."""
    if cell in ("-", "none"):
        return inf if cell == "-" else 0.0
    number, _, unit = cell.partition(" ")
    return float(number) * UNITS[unit]


def limit_of(row: Limit | str) -> Limit:
    """Return a limit, which is called by what is unknown without it."""
    if isinstance(row, Limit):
        return row
    (found,) = [limit for limit in PACKETS if limit.unknown.startswith(row)]
    return found


@pytest.mark.parametrize("start", ROWS)
def test_a_limit_of_the_verdict_is_the_codes(start: str) -> None:
    page = (DOCS / "explain" / "trust.md").read_text()
    (row,) = re.findall(rf"^\| {re.escape(start)}.*\| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    limit = limit_of(ROWS[start])
    assert all(map(isclose, map(value, row), (limit.strained, limit.void)))


def test_every_limit_over_packet_switches_has_a_row() -> None:
    assert {limit.unknown for limit in PACKETS} <= {limit_of(row).unknown for row in ROWS.values()}


@pytest.mark.parametrize(
    "sentence",
    [
        f"below {fidelity.BELOW_BOUND} of it",
        f"| {fidelity.BEHIND_STRAINED:.0%} | {fidelity.BEHIND_VOID:.0%} |".replace("%", " %"),
        f"more than {100 * fidelity.LATE_SHARE:g} % of all bytes",
        f"outside {agreement.AGREES_FROM:.2f} .. {agreement.AGREES_TO:.2f}",
        f"Below {similitude.FEW_PACKETS} packets a message",
        f"within a factor of {similitude.KEPT_WITHIN:g}",
    ],
)
def test_trust_has_the_numbers_of_the_code(sentence: str) -> None:
    assert sentence in text_of("trust.md")


@pytest.mark.parametrize(
    "sentence",
    [
        f"takes {calibrate.EMULATED_CCT_S:g} s at emulated scale, or {1000 * calibrate.EMULATED_STEP_S:g} ms",
        f"{scale.RING_STEP_PACKETS} packets at least, and {scale.EXACT_STEP_PACKETS} where",
        f"no longer than {scale.RINGS_S:g} s",
        f"no point takes longer than {scale.LONGEST_S:g} s",
        f"links of {1e6 * similitude.REAL_LINK_DELAY_S:g} µs one way",
        f"NCCL's timeout of {similitude.REAL_TIMEOUT_S:.2f} s",
        f"payloads of {similitude.ROCE_PAYLOAD_BYTES:,} bytes",
        f"port buffer of {1e6 * similitude.REAL_BUFFER_S:.0f} µs",
    ],
)
def test_scale_has_the_numbers_of_the_code(sentence: str) -> None:
    assert sentence in text_of("scale.md")
