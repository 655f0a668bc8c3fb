"""Jobs of your own over a rail fabric: when each of their nodes starts and ends (docs/reference/jobs.md)."""

import _checkout  # first: runs this file under the checkout's Python

from testbed.study.study_options import run_file

if __name__ == "__main__":
    run_file(__file__)
