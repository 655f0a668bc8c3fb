"""InfiniteHBD's all-to-all (section 7): binary exchange over circuits that change by rounds, and rings."""

import _checkout  # first: runs this file under the checkout's Python

from testbed.study.study_options import run_file

if __name__ == "__main__":
    run_file(__file__)
