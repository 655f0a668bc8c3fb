"""The table of dimensionless numbers: for the terminal and for the report, over all workloads of a run."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from testbed.report.table import block_table
from testbed.trust.similitude import FOLLOWS, KEPT_WITHIN, Number, few_packets_text, likeness, message_packets

CAPTION = (
    "Systems behave alike where their dimensionless numbers agree (Buckingham). Kept: within a factor of "
    f"{KEPT_WITHIN:g}. Real is RoCE in packets of 4096 bytes, with a port buffer of 52 µs (Tomahawk 2) and "
    "NCCL's timeout. A round trip is a packet's and its acknowledgement's, over the longest path with empty "
    "queues: the delays of links, a real one's {} µs, and sending. Below are constants of transports, as "
    "meant and as they are here: sizes in packets, and times in round trips, are kept at every scale."
)
WORDS = (
    "alike: all are kept. partly: BDP, port buffer / BDP and reconfiguration delay / CCT are kept, another "
    "is not. unlike: one of these three is not kept."
)
CHANGES = "--mtu, --buffer, --volume and --emulated-rate change the emulated side."


@dataclass(frozen=True)
class SimilitudeRow:
    """A number over all workloads."""

    name: str
    real: str
    emulated: str
    kept: bool
    words: str
    """Of the workload that is furthest from kept."""


def similitude_rows(of_workloads: Mapping[str, Sequence[Number]]) -> list[SimilitudeRow]:
    """Return a row per number, a range where workloads differ; constants of transports come last."""
    by_name: dict[str, list[Number]] = {}
    for numbers in of_workloads.values():
        for number in numbers:
            by_name.setdefault(number.name, []).append(number)
    first = [name for name in FOLLOWS if name in by_name]
    return [_row(name, by_name[name]) for name in dict.fromkeys([*first, *by_name])]


def similitude_caption(of_workloads: Mapping[str, Sequence[Number]], real_link_delay_s: float) -> str:
    """Return what the numbers are, how like the scales are by them, and which messages are short."""
    words = {name: word for name, numbers in of_workloads.items() if (word := likeness(numbers))}
    of_word = {word: [name for name in words if words[name] == word] for word in words.values()}
    each = [f"{word}: {'; '.join(names)}." for word, names in of_word.items()]
    if len(of_word) == 1:
        each = [f"This run: {next(iter(of_word))}."]
    few = few_packets_text({name: message_packets(numbers) for name, numbers in of_workloads.items()})
    said = [CAPTION.format(f"{real_link_delay_s * 1e6:g}"), CHANGES, WORDS, *each, few]
    return " ".join(filter(None, said))


def similitude_table(of_workloads: Mapping[str, Sequence[Number]], real_link_delay_s: float) -> Table:
    """Return the numbers as a table for the terminal."""
    shown = block_table(similitude_caption(of_workloads, real_link_delay_s))
    shown.add_column("dimensionless number")
    shown.add_column("real", justify="right", no_wrap=True)
    shown.add_column("emulated", justify="right", no_wrap=True)
    shown.add_column("", no_wrap=True)
    for row in similitude_rows(of_workloads):
        name = Text(row.name) if row.kept else Text.assemble(row.name, "\n", (f"  {row.words}", "dim"))
        ruling = Text("kept", "green") if row.kept else Text("not kept", "yellow")
        shown.add_row(name, row.real, row.emulated, ruling)
    return shown


def _row(name: str, numbers: Sequence[Number]) -> SimilitudeRow:
    worst = max(numbers, key=_apart)
    differ = len({number.words for number in numbers}) > 1
    words = f"at most {worst.words}" if differ and not worst.kept else worst.words
    real, emulated = _span(n.real for n in numbers), _span(n.emulated for n in numbers)
    return SimilitudeRow(name, real, emulated, worst.kept, words)


def _apart(number: Number) -> float:
    """Return how far apart the scales are: 0 where they are equal."""
    if number.real and number.emulated:
        return abs(math.log(number.emulated / number.real))
    return 0.0 if number.real == number.emulated else math.inf


def _span(values: Iterable[float]) -> str:
    texts = [f"{value:.0f}" if 100 <= value < 1e5 else f"{value:.2g}" for value in sorted(values)]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} .. {texts[-1]}"
