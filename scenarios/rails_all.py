"""All that RailS was evaluated on, in one run and one report (RailS, section VI)."""

import _checkout  # first: runs this file under the checkout's Python

from testbed.study.study_options import run_file

if __name__ == "__main__":
    run_file(__file__)
