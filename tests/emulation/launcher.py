"""The launcher of a run to be killed: a sandbox with `tests.emulation.victim` in it.

It imports nothing that only the run needs: a test that starts it waits for those imports once, not twice,
and nothing looks for garbage meanwhile.
"""

import sys

from testbed.machine.sandbox import run_in_sandbox

COMMAND = [sys.executable, "-m", "tests.emulation.launcher"]
VICTIM = "import gc; gc.disable(); from tests.emulation.victim import main; gc.enable(); main()"

if __name__ == "__main__":
    sys.exit(run_in_sandbox([sys.executable, "-c", VICTIM]))
