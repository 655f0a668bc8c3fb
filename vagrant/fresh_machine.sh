#!/usr/bin/env bash
# Prove the README's two commands on a bare machine: debootstrap, then provision, main job, tests.
#
#     sudo bash vagrant/fresh_machine.sh [-s SUITE] [-m MIRROR] [-c TARBALL] [-- OPTION OF rails_sparse.py ...]
#
#     -s SUITE    bookworm or noble; default: this machine's own
#     -m MIRROR   where debootstrap finds SUITE; default: as in this machine's apt sources
#     -c TARBALL  keep the bare system there, and take it from there the next time
#
# The machine is a folder that lasts as long as this command, and runs on this machine's kernel (vm.sh has one of its
# own). It runs what is committed (HEAD).
set -euo pipefail

MIRROR_OPTION=-m
# shellcheck source=vagrant/_bare_machine.sh
source "$(dirname "$0")/_bare_machine.sh"

main() {
    local suite mirror='' tarball=''
    suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    while getopts ':s:m:c:' option; do
        case $option in
        s) suite=$OPTARG ;;
        m) mirror=$OPTARG ;;
        c) tarball=$OPTARG ;;
        *) fail "unknown option; see the top of this file." ;;
        esac
    done
    shift $((OPTIND - 1))
    need_bare_machine
    temporary_folder ${tarball:+"$tarball.$$"}
    bare_system "$suite" "$mirror" "$tarball"
    carry_apt_and_certificates "$suite" "$mirror"
    carry_pip
    unpack_checkout "$machine/lightrail"
    run_inside prove "$@"
}

prove() { # options of the scenario
    local failed=0
    timed "bash vagrant/provision.sh" bash vagrant/provision.sh || exit 1
    timed "python scenarios/rails_sparse.py $*" python scenarios/rails_sparse.py "$@" || failed=1
    timed "bash vagrant/provision.sh (again)" bash vagrant/provision.sh || failed=1
    timed ".venv/bin/pytest -n auto" .venv/bin/pytest -n auto || failed=1
    printf '\n%s' "$summary"
    exit "$failed"
}

timed() { # what it is called, command
    local start=$SECONDS status=0
    echo "== $1"
    "${@:2}" || status=$?
    summary=${summary:-}$(printf '%-60s exit %d  %4d s' "$1" "$status" $((SECONDS - start)))$'\n'
    return "$status"
}

main "$@"
