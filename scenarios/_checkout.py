"""Run under the checkout's own Python, whatever `python` was called: the first import of every scenario.

It must run under an old python3 too, since that may be the one that was called.
"""

import gc
import os
import signal
import sys

CHECKOUT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
VENV = os.path.join(CHECKOUT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")

# Not sys.executable: .venv/bin/python is a symbolic link to the system's python; the prefix tells them apart.
if os.path.realpath(sys.prefix) != os.path.realpath(VENV):
    came_back = sys.executable == PYTHON  # it ran, and was in no environment
    if came_back or not os.access(PYTHON, os.X_OK):
        sys.stderr.write(f"no usable .venv in {CHECKOUT}; run as root: bash vagrant/provision.sh\n")
        sys.exit(2)
    os.environ.pop("PYTHONHOME", None)  # it would win over .venv
    words = getattr(sys, "orig_argv", ["", *sys.argv])  # with python's own options, from 3.10 on
    # What comes while the other Python starts waits for the handlers below: it would print a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    os.execv(PYTHON, [PYTHON, *words[1:]])

sys.path.insert(0, CHECKOUT)
from testbed.machine.signals import ENDING, hear  # noqa: E402

IS_SCENARIO = os.path.dirname(os.path.realpath(sys.argv[0])) == os.path.join(CHECKOUT, "scenarios")
if IS_SCENARIO:  # a traceback of imports would say nothing; `testbed.study.command.main` hears them anew
    hear(at_once=True)
signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
from testbed.machine.shortage import check_address_space, tell_shortage  # noqa: E402

check_address_space()
sys.excepthook = tell_shortage
# One thread: each other takes address space, and gains nothing where whole points are computed at once.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Imports make little garbage, and looking for it takes 0.7 s of a start of 1.8 s.
# `testbed.study.command.main` has it looked for again.
if IS_SCENARIO:
    gc.disable()
