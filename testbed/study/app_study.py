"""An application carried out: its output passed on, its results written, and its run ended in order.

A worker in a sandbox runs it (`testbed.apps.app_run`); this process alone prints and writes. The first signal
that would end this command is passed on to the worker, which ends the application and says what became of it,
so that the results of what ran are kept; the second ends this command at once.
"""

import math
import os
import signal
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import FrameType

from testbed.apps.app_processes import EndedProcess, Wrote
from testbed.apps.app_record import AppEvent, AppRecord
from testbed.apps.app_run import AppNews, AppPlan, Began, Going, Told, applied, full_load, output_file
from testbed.apps.launchers import Launch
from testbed.apps.phases import between_servers, busy_share, traffic_phases
from testbed.machine.datapath import bridges
from testbed.machine.files import GrowingFile, directory_lock, make_directory, remove
from testbed.machine.sandbox import raise_descriptor_limit
from testbed.machine.signals import ENDING
from testbed.report.doubts import doubts
from testbed.report.page import Format
from testbed.report.results import directory_asked_for, directory_by_time
from testbed.study.machine import measured
from testbed.study.output import say, standard_output
from testbed.study.worker import EmulationWorker
from testbed.trust.calibrate import CarriedLoad, rate_factor
from testbed.trust.fidelity import NOTHING_SENT
from testbed.trust.scale import BY_TCP, plain
from topologies.errors import LightrailError, MachineError
from traffic.readers.detect import read_trace

WRITTEN = ("app.json", "run.json", "report.html", "*.parquet", "*.csv", "job.json", "fabric.json", "hosts/*",
           "pcap/*", "phases/*", "*.png", "*.pdf", "*.svg")  # fmt: skip
"""Files of a run: none of them may be there before."""
ENDED_BY_TIMEOUT = 124
"""The exit code where an application was ended after ``--timeout``, that of timeout(1)."""


@dataclass(frozen=True, kw_only=True)
class Carrying:
    """How an application is carried out."""

    rate_bps: float | None = None
    """The rate that its fastest NIC is shaped to [bit/s]; None for one that this machine carries safely."""
    calibrate: bool = False
    """True to measure anew what this machine carries."""
    out: Path | None = None
    """The directory of its results; None for a new one below ``results/app``."""
    formats: Sequence[Format] = ("png",)
    """Of plots."""
    waits: bool = True
    """True to wait for another emulation's end."""
    demand: Path | None = None
    """A file of what the application was to send, which it may write itself."""


def run_app(plan: AppPlan, how: Carrying) -> int:
    """Run an application, write its results and say where they are; return the exit code of the command."""
    now = datetime.now()
    path = directory_by_time("app", now) if how.out is None else directory_asked_for(how.out, WRITTEN)
    with directory_lock(path), _emptied_unless_written(path), ExitStack() as stack:
        outputs = stack.enter_context(_Outputs(path))
        stop, stopping = (
            stack.enter_context(open(end, mode, 0)) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
        )
        captures = tuple(replace(each, descriptor=outputs.descriptor(each.name)) for each in plan.captures)
        keep = (stop.fileno(), *(each.descriptor for each in captures))
        plan = replace(plan, stop=stop.fileno(), captures=captures)
        bridged = bool(bridges(plan.fabric, plan.datapath))
        with EmulationWorker(waits=how.waits, keep=keep, bridged=bridged) as worker:
            plan = replace(plan, rate=_rate(worker, plan, how))
            heard, record = _followed(worker.call(applied, plan), plan, outputs, stopping.fileno())
        outputs.place()
        record = _with_demand(record, how.demand)
        report = _report(record, path, how.formats)
    with _written(heard, f"the results are complete: {report}"):
        for line in [*summary(record), f"results: {report}"]:
            say(line)
    if heard:
        return 128 + heard[0]
    return ENDED_BY_TIMEOUT if record.stopped else record.exit_code


def _with_demand(record: AppRecord, file: Path | None) -> AppRecord:
    """Return a record with the demand of a file, or say why that cannot be shown."""
    if file is None:
        return record
    try:
        return replace(record, demand=between_servers(read_trace(file), record.fabric))
    except LightrailError as error:  # the run stands all the same
        say(f"nothing stands beside what was sent: {error}")
        return record


def _report(record: AppRecord, path: Path, formats: Sequence[Format]) -> Path:
    """Write all of a run but its outputs; return where its report is."""
    from testbed.report.app_report import write_app_report  # here: matplotlib takes long to import

    return write_app_report(record, path, formats)


def summary(record: AppRecord) -> Iterator[str]:
    """Yield what came of a run, in lines."""
    phases = traffic_phases(record.tables.traffic, len(record.fabric.servers), record.tap.bin_s)
    share = busy_share(phases, record.duration_s)
    busy_s = share * record.duration_s
    codes = [each.exit_code for each in record.processes]
    failed = sum(code != 0 for code in codes)
    ended = f"{failed} of {len(codes)} processes failed" if failed else "all exit codes are 0"
    sent = (
        f"hosts sent for {share:.0%} of it, {_text(busy_s)}, which are "
        f"{_text(busy_s * record.rate_factor)} at real scale; "
    )
    nothing = record.verdict.reasons == (NOTHING_SENT,)
    judged = NOTHING_SENT if nothing else record.verdict.word
    yield f"it took {record.duration_s:.4g} s; {sent if share else ''}{ended}; {judged}"
    yield from () if nothing else (f"  {doubt}" for doubt in doubts([record.verdict]))
    if missed := record.tap.missed:
        yield f"  {missed:,} packets came faster than they were counted, so bytes between hosts lack them"
    if unread := sum(each.unread for each in record.hosts):
        yield f"  {unread:,} datagrams arrived and were lost at sockets: programs read them too slowly here"
    if not math.isnan(record.predicted_s):
        yield f"  the model predicts {record.predicted_s:.4g} s for the same bytes, pauses and faults"
    if beside := record.beside:
        words = f"{beside.application_s:.4g} s for {beside.payload_bytes:,} bytes"
        mended = "with nothing failing, " if record.failed else ""
        yield (
            f"  {beside.what}: {words}; {mended}lightrail's generator took {beside.generator_s:.4g} s "
            f"({beside.verdict.word}), predicted {beside.predicted_s:.4g} s"
        )
    yield from (f"  {each.text} was to come after the end" for each in record.events if each.what == "missed")


def _text(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms" if 0 < seconds < 1 else f"{seconds:.4g} s"


def _rate(worker: EmulationWorker, plan: AppPlan, how: Carrying) -> float:
    """Return emulated over real rate: as asked for, or what this machine carries while all NICs send."""
    fabric = plan.fabric
    nic_bps = max(map(fabric.nic_rate_bps, fabric.nics))
    if how.rate_bps is not None:
        return min(how.rate_bps / nic_bps, 1.0)
    (machine,) = worker.call(measured, plan.datapath, False, how.calibrate)
    machine.told()
    load = full_load(fabric, plan.mtu)
    if not load.hop_bps:  # over circuits a packet crosses one switch
        load = CarriedLoad(*2 * [sum(map(fabric.nic_rate_bps, fabric.nics))])
    return rate_factor(plain(fabric), load * BY_TCP, machine.calibration, None, plan.mtu)


def _followed(
    news: Generator[AppNews, None, object], plan: AppPlan, outputs: "_Outputs", stopping: int
) -> tuple[list[int], AppRecord]:
    """Show what comes of an application; return the signals that ended it, and its record."""
    heard, record = list[int](), None
    with ExitStack() as stack:
        shown = _Shown(outputs, plan.launch)
        for each in news:
            if isinstance(each, Began):
                stack.enter_context(_passed_on(stopping, heard))
            elif isinstance(each, AppRecord):
                record = each
            else:
                with _written(heard, "the application was ended"):
                    shown.show(each)
        with _written(heard, "the application was ended"):
            shown.clear()
    if record is None:
        raise MachineError("the application's run left no record", "run it again with --debug")
    return heard, record


@contextmanager
def _written(heard: Sequence[int], hint: str) -> Iterator[None]:
    """Turn a failure of standard output into a MachineError, unless signals have ended the run already.

    A terminal that is closed ends it by SIGHUP, and takes no word more; the results are kept all the same.
    """
    try:
        with standard_output(hint):
            yield
    except MachineError:
        if not heard:
            raise


@contextmanager
def _passed_on(stopping: int, heard: list[int]) -> Iterator[None]:
    """Have the first signal that would end this command end the application; the next ends this command."""
    before = {number: signal.getsignal(number) for number in ENDING}

    def pass_on(number: int, frame: FrameType | None) -> None:
        if heard and callable(handler := before[signal.Signals(number)]):
            handler(number, frame)
        heard.append(number)
        os.write(stopping, bytes([number]))

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _emptied_unless_written(path: Path) -> Iterator[None]:
    """Remove the directory of a run that ended before it had anything to write."""
    try:
        yield
    except BaseException:
        for folder in (path / "hosts", path / "pcap", path):
            with suppress(MachineError):  # something is in it
                remove(folder)
        raise


@dataclass(eq=False)
class _Outputs:
    """The files of what processes write and NICs carry, which have their places when all is known."""

    path: Path
    _files: dict[str, GrowingFile] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "_Outputs":
        raise_descriptor_limit()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def file(self, name: str) -> GrowingFile:
        """Return the file of a name, begun when it is asked for first."""
        if name not in self._files:
            make_directory((self.path / name).parent)
            self._files[name] = self._stack.enter_context(GrowingFile(self.path / name))
        return self._files[name]

    def descriptor(self, name: str) -> int:
        """Return the descriptor of a file that another process writes."""
        return self.file(name).fileno()

    def place(self) -> None:
        """Put all files into their places."""
        for file in self._files.values():
            file.place()


class _Shown:
    """The display of an application: its output, and beside it what runs.

    Parameters
    ----------
    outputs
        Where output is written too.
    launch
        What was started.
    """

    def __init__(self, outputs: _Outputs, launch: Launch) -> None:
        self._outputs, self._launch = outputs, launch
        for label in launch.labels:
            outputs.file(output_file(label))
        self._has_terminal = sys.stderr.isatty()
        self._line = ""

    def show(self, news: Told | Going | Wrote | EndedProcess | AppEvent) -> None:
        """Show something."""
        if isinstance(news, Going):
            some = ", ".join(news.running[:6]) + (", ..." if len(news.running) > 6 else "")
            self._tell(f"{news.at_s:.0f} s: {some} running, hosts send {news.bps / 1e6:.3g} Mbit/s")
            return
        self.clear()
        if isinstance(news, Wrote):
            self._pass_on(news)
        elif isinstance(news, Told):
            say(news.sentence)
        elif isinstance(news, AppEvent):
            say(f"{news.at_s:.2f} s: {news.text} {news.what}")
        elif news.code:
            say(f"{self._launch.processes[news.number].label} ended with exit code {news.code}")

    def clear(self) -> None:
        """Take away the line that says what runs."""
        if self._line:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._line = ""

    def _pass_on(self, wrote: Wrote) -> None:
        """Print lines behind their author's name, and write them as they are."""
        self._outputs.file(output_file(wrote.label)).append(wrote.data)
        stream = sys.stderr.buffer if wrote.is_error else sys.stdout.buffer
        name = f"{wrote.label}: ".encode()
        ends = b"" if wrote.data.endswith(b"\n") else b"\n"
        stream.write(b"".join(name + line for line in wrote.data.splitlines(keepends=True)) + ends)
        stream.flush()

    def _tell(self, line: str) -> None:
        if self._has_terminal:
            self.clear()
            sys.stderr.write(line)
            sys.stderr.flush()
            self._line = line
