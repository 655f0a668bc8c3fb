"""The emulation worker: functions called inside a sandbox, by one Python process, while this one only waits.

    this process                                    the worker, in a sandbox
      call, and (function, arguments)      ────►    calls it
      value, event                         ◄────    has what the generator yields, and waits
      next, and a value or None            ────►    goes on, its yield having that value
      ...
      returned, result  |  raised, error   ◄────    waits for the next call

A message is a header of one JSON line, ``{"kind": ...}``, and a value packed into a memfd that is sent beside
it: the two share no folder. The worker goes on when it is asked for the next value, as a generator does, so
nothing in this process runs beside what is measured in there, and a generator that is closed here is closed
there; what is sent to it here is sent to it there. Commands on hosts have sockets of their own, from a
descriptor that the worker keeps (`testbed.apps.host_server`).
"""

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from traceback import format_exc, print_exc
from types import FrameType
from typing import NoReturn, TypeVar, cast

from testbed.machine.machine_lock import machine_lock
from testbed.machine.sandbox import Sandbox, check_tools, inside_sandbox
from testbed.machine.shortage import EMULATION_BYTES, RAISE_MEMORY, too_little
from testbed.study.packed import pack, unpack
from topologies.errors import MachineError
from traffic.compiled import engine

Event = TypeVar("Event")
HEADER_BYTES = 1 << 12
PACKED_NOTHING = pack(None)
BOOT = (
    "import gc, json, sys; gc.disable(); sys.path[:] = json.loads(sys.argv[2]); "
    "from testbed.machine.shortage import tell_shortage; sys.excepthook = tell_shortage; "
    "from testbed.study.worker import answer_calls; answer_calls(int(sys.argv[1]))"
)
"""What the worker's Python runs. It imports the faster while nothing looks for garbage."""


class EmulationWorker:
    """Calls functions inside a sandbox; a context manager, at whose end all in the sandbox has ended.

    There is one at a time on a machine.

    Parameters
    ----------
    sandbox
        False calls them in this process, on the machine itself; so does a worker inside a sandbox.
    terminal
        Whether they have this process' standard streams and its Ctrl-C. Else they read nothing, and write to
        its standard error.
    waits
        Whether it waits for another emulation's end; else that is a MachineError.
    keep
        Descriptors that it has too, under the same numbers.
    bridged
        Whether its networks have bridges of Open vSwitch.
    """

    def __init__(
        self,
        *,
        sandbox: bool = True,
        terminal: bool = False,
        waits: bool = True,
        keep: Sequence[int] = (),
        bridged: bool = True,
    ) -> None:
        self._wants_sandbox, self._terminal, self._waits = sandbox, terminal, waits
        self._keep, self._bridged = tuple(keep), bridged
        self._is_open = self._is_called = False
        self._sandbox: Sandbox | None = None

    def __enter__(self) -> "EmulationWorker":
        """Wait until no other emulation runs on this machine, and start the sandbox."""
        if said := too_little("an emulation", EMULATION_BYTES):
            raise MachineError(said, RAISE_MEMORY)
        with ExitStack() as stack:
            if not inside_sandbox():
                if self._wants_sandbox:
                    check_tools(bridged=self._bridged)  # before others' emulations are waited for
                lock = stack.enter_context(machine_lock(waits=self._waits))
                if self._wants_sandbox:
                    self._start(stack, lock)
            self._stack = stack.pop_all()
        self._is_open = True
        return self

    def __exit__(self, *_error: object) -> None:
        """End the sandbox; what runs inside is closed first."""
        self._is_open = False
        self._stack.close()

    def call(
        self, function: Callable[..., Iterator[Event]], *arguments: object
    ) -> Generator[Event, object, object]:
        """Yield what a generator function yields in the sandbox, as soon as it does; return what it returns.

        What is sent to this generator is sent to that one.

        Parameters
        ----------
        function
            A function at the top of a module that can be imported, which returns a generator.
        arguments
            What it is called with. They are packed, as is what it yields (`testbed.study.packed`).

        Raises
        ------
        ScenarioError
            If the function, or the class of an argument, is defined in the calling script.
        MachineError
            If the worker is killed.
        BaseException
            What the function raises, with the worker's traceback as a note.
        """
        if self._is_called or not self._is_open:
            raise MachineError("an emulation worker answers one call at a time, while it is open")
        if self._sandbox is None:
            return (yield from cast(Generator[Event, object, object], function(*arguments)))
        call = pack((engine(), function, arguments))
        self._is_called = True  # and remains so if the wait is interrupted: its answer would be the wrong one
        kind, value = self._asked("call", call)
        while kind == "value":
            try:
                sent = yield cast(Event, value)
            except BaseException:
                self._close_call()
                raise
            kind, value = self._asked("next", None if sent is None else pack(sent))
        self._is_called = False
        if isinstance(value, BaseException) and kind == "raised":
            raise value
        return value

    def _start(self, stack: ExitStack, lock: int) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.enter_context(here)
        self._channel = _Channel(here)
        path = [*map(str, sys.path), os.getcwd()]  # where `own_object` finds a user's modules too
        python = [sys.executable, "-P", "-c", BOOT, str(there.fileno()), json.dumps(path)]
        with there:
            keep = (there.fileno(), lock, *self._keep)
            sandbox = Sandbox(python, keep=keep, terminal=self._terminal, bridged=self._bridged)
            self._sandbox = stack.enter_context(sandbox)

    def _close_call(self) -> None:
        """Have the generator inside closed, unless the sandbox has ended with it."""
        if self._is_open:
            kind, value = self._asked("close")
            self._is_called = False
            if isinstance(value, BaseException) and kind == "raised":
                raise value

    def _asked(self, kind: str, packed: bytes | None = None) -> tuple[str, object]:
        """Send a message; return the kind and the value of the answer. MachineError if there is none."""
        assert self._sandbox is not None
        with suppress(ConnectionError):  # the worker has been killed
            self._channel.send(kind, packed)
            if self._sandbox.heard(self._channel.socket) and (answer := self._channel.received()):
                return answer[0], unpack(answer[1])
        code = self._sandbox.wait()
        end = f"was killed by signal {code - 128}" if code > 128 else f"ended with exit code {code}"
        raise MachineError(f"the emulation worker {end}", "see whether memory ran out (dmesg)")


class _Channel:
    """Sends and receives messages, each a header and a packed value."""

    def __init__(self, channel: socket.socket) -> None:
        self.socket = channel

    def send(self, kind: str, packed: bytes | None = None) -> None:
        """Send a message; ConnectionError if the other end is closed."""
        header = [json.dumps({"kind": kind}).encode() + b"\n"]
        with open(os.memfd_create(kind), "wb") as value:
            value.write(PACKED_NOTHING if packed is None else packed)
            value.flush()
            socket.send_fds(self.socket, header, [value.fileno()])

    def received(self) -> tuple[str, bytes] | None:
        """Return the next message; None if the other end is closed."""
        header, descriptors, *_ = socket.recv_fds(self.socket, HEADER_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if not header:
            return None
        with open(descriptors[0], "rb") as value:
            value.seek(0)
            return json.loads(header)["kind"], value.read()


def answer_calls(descriptor: int) -> NoReturn:
    """Answer calls until the other end of a socket is closed: all that the worker's Python does."""
    signal.signal(signal.SIGTERM, _end)
    os.set_inheritable(descriptor, False)
    code: object = 0
    try:
        channel = _Channel(socket.socket(fileno=descriptor))
        while message := channel.received():
            channel.send(*_answer(channel, message[1]))
    except SystemExit as end:
        code = end.code
    except BaseException:
        print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)  # without a wait for threads: all else ends with it


def _answer(channel: _Channel, call: bytes) -> tuple[str, bytes]:
    try:
        return "returned", pack(_returned(channel, call))
    except SystemExit:  # it is to end
        raise
    except BaseException as error:
        error.add_note(format_exc())
        return "raised", _packed_error(error)


def _returned(channel: _Channel, call: bytes) -> object:
    """Send what a function yields, each value when it is asked for, and return what it returns."""
    call_of = tuple[str, Callable[..., Generator[object, object]], tuple[object, ...]]
    kind, function, arguments = cast(call_of, unpack(call))
    if kind != engine():
        raise MachineError(
            "the engine was edited or compiled after this run had begun: the worker's engine is "
            f"{engine()}, this run's {kind}",
            "begin the run again",
        )
    if not gc.isenabled():
        gc.freeze()  # what is imported stays
        gc.enable()
    sent: object = None
    with closing(function(*arguments)) as values:
        while True:
            try:
                value = values.send(sent)
            except StopIteration as end:
                return end.value
            channel.send("value", pack(value))
            if (message := channel.received()) is None or message[0] != "next":
                return None
            sent = unpack(message[1])


def _packed_error(error: BaseException) -> bytes:
    """Return an error packed, as a RuntimeError of the same text if it cannot be unpacked."""
    try:
        packed = pack(error)
        unpack(packed)
    except Exception:  # whatever it is that cannot be sent: what it says is
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        plain.__notes__ = error.__notes__
        return pack(plain)
    return packed


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signal.SIGTERM)
