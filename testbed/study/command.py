"""A scenario's command: its parameters are its options, an error is one sentence."""

import atexit
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import update_wrapper
from inspect import Parameter, Signature, signature
from io import TextIOWrapper
from typing import Annotated, NoReturn, TypeVar, get_origin

import typer
from rich.text import Text

from testbed.experiment.experiment import Experiment
from testbed.experiment.running import CHECKS
from testbed.machine.datapath import default_datapath, hashing_of
from testbed.machine.signals import hear, heard, ignore, said_of
from testbed.machine.stopped import say_what_is_stopped
from testbed.report.results import ENTERED
from testbed.study.carry_out import carry_out
from testbed.study.computed import ComputedStudy, compute
from testbed.study.glances import PlannedFailures
from testbed.study.going_on import LEFT, GoingOn
from testbed.study.options import (
    DEFAULT_TRANSPORTS,
    Debug,
    buffer_bytes,
    check_effect,
    faults,
    known_after_s,
    listed,
    time_s,
    transport_named,
    with_default,
)
from testbed.study.output import print_tables, say
from testbed.study.study import Options, Study
from testbed.trust.similitude import REAL_LINK_DELAY_S
from topologies.addresses import ENTROPIES
from topologies.errors import LightrailError, ScenarioError
from topologies.fabric import Fabric
from topologies.own import NotLoadedError, without_own_code
from traffic.fault_text import DETECT_S
from traffic.packets import DEFAULT_MTU
from traffic.transports.host_settings import CREDIT, Marks, TransportSetup

Taken = TypeVar("Taken")

INTERRUPTED = 130
"""The exit code that typer makes of Ctrl-C."""

MOST_WINDOW_PACKETS = 1000
MOST_TIMEOUT_MS = 100_000.0
"""The kernel's own longest is 120 s."""
CARRYING = ("jobs", "resume", "part", "cluster", "out", "plots")
"""The fields of `Options` that a study has whose points are calls."""
CONTEXT = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
DEBUG = Parameter("debug", Parameter.KEYWORD_ONLY, default=False, annotation=Debug)


@dataclass(frozen=True, kw_only=True)
class StudyChanges:
    """What options of a command change in all points of a study; their help says what each is."""

    link_delay_us: Annotated[
        float,
        typer.Option(
            help="Propagation delay of every link, one way, at real scale [us]; under tcp it needs a kernel"
            " with netem."
        ),
    ] = 0.0
    real_link_delay_us: Annotated[
        float,
        typer.Option(
            help="Propagation delay of a link of the real network, one way, for its dimensionless numbers;"
            " what is emulated has --link-delay-us [us]."
        ),
    ] = REAL_LINK_DELAY_S * 1e6
    loss: Annotated[
        float,
        typer.Option(
            help="Share of packets that every link loses at random in each direction, 0.01 for 1 %: of the"
            " emulation's packets (--mtu), at any scale; needs a kernel with netem."
        ),
    ] = 0.0
    transport: Annotated[
        str | None,
        typer.Option(
            help="What moves bytes between NICs, comma-separated: credit (datagrams that receivers grant),"
            " nscc, dctcp and swift (datagrams in windows of senders), ideal (clairvoyant), tcp (the"
            " kernel's; also tcp:bbr, tcp:reno ...), or your own as"
            f" module:Class (docs/howto/own_transport.md). By default {DEFAULT_TRANSPORTS}, or the one that"
            " the scenario is about; the first of them where nothing is emulated."
        ),
    ] = None
    entropies: Annotated[
        int,
        typer.Option(
            help=f"How many of a NIC's {ENTROPIES} entropies schemes have that choose as they go, where"
            " packets are datagrams (docs/explain/spraying.md)."
        ),
    ] = ENTROPIES
    marks: Annotated[
        Marks,
        typer.Option(
            metavar="<str>",  # both words would leave longer options no room
            help="What marks packets that are datagrams (ECN): engine, from the queue that each met, or"
            " switches, where the kernel has RED (docs/explain/spraying.md).",
        ),
    ] = "engine"
    ack_packets: Annotated[
        bool,
        typer.Option(
            "--ack-packets",
            help="Have acknowledgements, announcements and grants of datagrams be packets of 64 bytes, which"
            " ports send before data where the kernel can (docs/explain/transports.md).",
        ),
    ] = False
    initial_window: Annotated[
        int | None,
        typer.Option(
            help="TCP's initial window [packets]; by default as the transport needs it, see run.json."
        ),
    ] = None
    least_rto_ms: Annotated[
        float | None,
        typer.Option(
            help="TCP's least retransmission timeout in the emulation [ms]; under tcp by default twice the"
            " round trip through a full port."
        ),
    ] = None
    share_queue_pairs: Annotated[
        bool,
        typer.Option(
            "--share-queue-pairs",
            help="Have all collectives share queue pairs, instead of each communicator having its own"
            " (docs/reference/jobs.md).",
        ),
    ] = False
    mtu: Annotated[
        int,
        typer.Option(
            help="MTU of the emulation's links, 1500 to 9000 [bytes]. Small packets are more per message, and"
            " cost the switch as much each: the automatic rate is as much lower."
        ),
    ] = DEFAULT_MTU
    buffer: Annotated[
        int | None,
        typer.Option(
            help="What a switch port holds in the emulation before it drops [full packets of --mtu];"
            " by default 2 MiB."
        ),
    ] = None
    fail: Annotated[
        str | None,
        typer.Option(
            help="What fails, comma-separated, such as nic:3:1@40%-70%: NIC 1 of server 3, from 40 to 70 %"
            " of the prediction. Also link:leaf0-spine1@2ms, link:leaf0:3@40%, server:2@40%, gpu:5@40%,"
            " port:ocs0:3@40%, controller@40%, switches@40%; nic:3:1@40%=0.5 goes on at half its rate,"
            " nic:3:1@40%=loss:0.01 loses 1 % of its packets. Every point runs without and with it."
        ),
    ] = None
    detect_us: Annotated[
        float | None,
        typer.Option(
            help=with_default(
                "How long after a fault, and after its end, everybody knows, at real scale [us].",
                f"{DETECT_S * 1e6:g}",
            )
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse what no study can have, before one is described."""
        window, timeout_ms = self.initial_window, self.least_rto_ms
        if window is not None and not 1 <= window <= MOST_WINDOW_PACKETS:
            raise ScenarioError(f"an initial window of {window} packets", f"give 1 to {MOST_WINDOW_PACKETS}")
        if timeout_ms is not None and not 1 <= timeout_ms <= MOST_TIMEOUT_MS:
            raise ScenarioError(f"a least timeout of {timeout_ms:g} ms", f"give 1 to {MOST_TIMEOUT_MS:g}")
        self.real_link_delay_s()
        self.known_after_s()
        if self.fail is None:
            check_effect("no fault is given by --fail", {"--detect-us": self.detect_us})
        self.setups(CREDIT.name)

    def real_link_delay_s(self) -> float:
        """Return the propagation delay of a link of the real network, one way [s]."""
        return time_s(self.real_link_delay_us, "a real link's delay of", "--real-link-delay-us")

    def known_after_s(self) -> float:
        """Return how long until faults are known [s]."""
        return DETECT_S if self.detect_us is None else known_after_s(self.detect_us)

    def setups(self, usual: str = DEFAULT_TRANSPORTS) -> list[TransportSetup]:
        """Return the transports that are asked for, else usual ones by commas, each once."""
        named = listed(usual if self.transport is None else self.transport)
        timeout_s = None if self.least_rto_ms is None else self.least_rto_ms / 1e3
        hosts = self.initial_window, timeout_s, self.entropies, self.marks, self.ack_packets
        return [TransportSetup(transport_named(name), *hosts) for name in named]

    def fabric(self, fabric: Fabric, mtu: int) -> Fabric:
        """Return a fabric with the delay, the loss and the buffers that are asked for."""
        if self.link_delay_us or self.loss:
            fabric = fabric.with_links(delay_s=self.link_delay_us / 1e6, loss=self.loss)
        return fabric if self.buffer is None else fabric.with_buffer(buffer_bytes(self.buffer, mtu))

    def made(self, study: Study, *, model_only: bool) -> Study:
        """Return a study with these changes; predictions alone need but one transport."""
        setups = self.setups(study.transports or DEFAULT_TRANSPORTS)
        if self.transport is None and not study.transports and model_only:
            setups = setups[:1]
        own_mtu = self.mtu == DEFAULT_MTU
        mtu = study.experiments[0].mtu if own_mtu else self.mtu
        fabrics = {fabric: self.fabric(fabric, mtu) for fabric in study.fabrics}

        def setups_of(each: Experiment) -> list[TransportSetup]:
            takes_all = each.over_packets or (self.transport is not None and not each.has_slots)
            return setups if takes_all else setups[:1]  # slots send datagrams, whatever the transport

        def made_of(each: Experiment) -> list[Experiment]:
            return [
                replace(
                    each,
                    fabric=fabrics[each.fabric],
                    transport=setup,
                    mtu=each.mtu if own_mtu else self.mtu,
                    shared_queue_pairs=each.shared_queue_pairs or self.share_queue_pairs,
                )
                for setup in setups_of(each)
            ]

        study = replace(study.changed(made_of), real_link_delay_s=self.real_link_delay_s())
        if self.fail is None:
            return study
        return study.failing(PlannedFailures(tuple(faults(self.fail)), self.known_after_s()))


def run(describe: Callable[..., Study]) -> NoReturn:
    """Run a scenario: its parameters are its options, and after them those that say how to carry it out."""

    def command(context: typer.Context, debug: bool, **given: object) -> None:
        options = replace(_taken(Options, given), typed=context.obj)
        with loading(dry_run=options.dry_run):
            described(options, given)

    def described(options: Options, given: dict[str, object]) -> None:
        changes = _taken(StudyChanges, given)
        if options.model_only:
            emulation = {
                "--volume": options.volume,
                "--emulated-rate": options.emulated_rate_mbps,
                "--no-sandbox": options.no_sandbox,
                "--no-wait": options.no_wait,
                "--datapath": options.datapath not in {Options.datapath, default_datapath()}
                and hashing_of(options.datapath) == hashing_of(Options.datapath),
            }
            check_effect("--model-only emulates nothing", emulation)
        study = changes.made(describe(**given), model_only=options.model_only)
        if options.dry_run and study.parameters:
            say(study.grid)
        carry_out(study, options.or_usual(study.usual))

    _run(command, describe, [*_fields(StudyChanges), *_fields(Options)])


@contextmanager
def loading(*, dry_run: bool) -> Iterator[None]:
    """Load no code of the user's own in a dry run, and print what is not known without it."""
    if not dry_run:
        yield
        return
    try:
        with without_own_code():
            yield
    except NotLoadedError as own:
        said = (
            f"A dry run loads no code of yours, and this run is decided by {own}. Its points, and the"
            " time, the memory and the open files that they take, are not known without it."
            " Nothing was booted."
        )
        print_tables([Text(said)], "nothing was booted")


def run_computed(describe: Callable[..., ComputedStudy | Study]) -> NoReturn:
    """Run a scenario whose points are calls, as `run` does; an option of it may ask for a study instead."""

    def command(context: typer.Context, debug: bool, **given: object) -> None:
        options = replace(_taken(Options, given), typed=context.obj)
        study = describe(**given)
        if isinstance(study, Study):
            carry_out(study, options)
        else:
            compute(study, options, given)

    _run(command, describe, [each for each in _fields(Options) if each.name in CARRYING])


def _taken(kind: type[Taken], given: dict[str, object]) -> Taken:
    """Take those options out of what was given that are a dataclass's fields, and return its value."""
    return kind(**{each.name: given.pop(each.name) for each in _fields(kind) if each.name in given})


def _fields(kind: type[object]) -> list[Parameter]:
    return [each for each in signature(kind).parameters.values() if get_origin(each.annotation) is Annotated]


def _run(
    command: Callable[..., None], describe: Callable[..., object], shared: Sequence[Parameter]
) -> NoReturn:
    """Run a command that has a scenario's options, and after them shared ones."""
    wrapped = update_wrapper(command, describe)
    own = signature(describe).parameters.values()
    # What typer reads, instead of the lists of options in every scenario.
    wrapped.__signature__ = Signature([CONTEXT, *own, *shared, DEBUG])  # type: ignore[attr-defined]
    main(wrapped)


def main(
    command: Callable[..., None], check_typed: Callable[[Sequence[str]], None] = lambda _words: None
) -> NoReturn:
    """Run a command; an error is one sentence, with exit code 2; so is a signal, with 128 + its number.

    ``check_typed`` may refuse the words that were typed, before they are read as options.
    """
    gc.freeze()  # what is imported stays
    gc.enable()  # `_checkout` has turned it off
    ENTERED.clear()
    LEFT.clear()
    if "--debug" in sys.argv:
        os.environ[CHECKS] = "1"  # which the processes inherit that predict and emulate
    try:
        hear()  # until here they ended this command at once (`_checkout`)
        app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)
        app.command(cls=GoingOn, context_settings={"help_option_names": ["-h", "--help"]})(command)
        say_what_is_stopped()
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # where ± or µ cannot be written, ? stands for it
        check_typed(sys.argv[1:])
        app()
    except BaseException as error:
        interrupted = _is_of_interrupt(error)
        if interrupted or isinstance(error, SystemExit):
            ignore()  # the end takes a moment, and leaves nothing undone
        if interrupted:
            _say_end(said_of(heard()))
            sys.exit(128 + heard())
        if isinstance(error, SystemExit):
            raise
        if not isinstance(error, LightrailError) or "--debug" in sys.argv:
            atexit.register(_say_end)  # after what Python prints of it
            raise
        _say_end(str(error))
        sys.exit(2)
    sys.exit(0)


def _is_of_interrupt(error: BaseException | None) -> bool:
    """Whether a signal raised an error, or what it was made of.

    Of all that is raised while a class is made Python makes a RuntimeError, and an import makes many.
    """
    if isinstance(error, SystemExit):
        return error.code == INTERRUPTED
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_of_interrupt(error.__cause__))


def _say_end(*why: str) -> None:
    """Say why a command ended in its middle, what is left of it, and how to go on with it."""
    for line in (*why, *LEFT):
        say(line)
