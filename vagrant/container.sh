#!/usr/bin/env bash
# Try the Dockerfile without a container engine: what it does to a bare Debian, and its entry point.
#
#     sudo bash vagrant/container.sh [-m MIRROR] [-c TARBALL] [-- WORD OF lightrail ...] ...
#
#     -m MIRROR   where debootstrap finds Debian 12; default: as in this machine's apt sources
#     -c TARBALL  keep the bare system there, and take it from there the next time
#
# Each `--` begins the words of a container of its own; by default they are `list`, a prediction and a small emulation.
# It has the rights and the devices that `docker run --privileged --device /dev/net/tun` gives, and runs what is
# committed (HEAD).
set -euo pipefail

MIRROR_OPTION=-m
# shellcheck source=vagrant/_bare_machine.sh
source "$(dirname "$0")/_bare_machine.sh"

main() {
    local mirror='' tarball=''
    while getopts ':m:c:' option; do
        case $option in
        m) mirror=$OPTARG ;;
        c) tarball=$OPTARG ;;
        *) fail "unknown option; see the top of this file." ;;
        esac
    done
    shift $((OPTIND - 1))
    [[ $# -gt 0 ]] || set -- list -- run rails_sparse --model-only -- run rails_uniform --servers 2 --rails 2 --seeds 1
    need_bare_machine
    temporary_folder ${tarball:+"$tarball.$$"}
    bare_system bookworm "$mirror" "$tarball"
    carry_apt_and_certificates bookworm "$mirror"
    carry_pip
    unpack_checkout "$machine$(instruction COPY | cut -d ' ' -f 2)"
    run_inside contain "$(instruction RUN)" "$(instruction WORKDIR)" "$(instruction ENTRYPOINT | tr -d '[]",')" "$@"
}

instruction() { # its name
    sed -n "s/^$1 //p" "$checkout/Dockerfile"
}

contain() { # RUN's lines, working directory, entry point, words of containers
    local line words=()
    while read -r line; do
        printf '== RUN %s\n' "$line"
        bash -c "$line" </dev/null || exit
    done <<<"$1"
    mkdir -p "$2"
    cd "$2" || exit
    for word in "${@:4}" --; do
        if [[ $word != -- ]]; then
            words+=("$word")
            continue
        fi
        printf '== lightrail %s\n' "${words[*]}"
        "$3" "${words[@]}" </dev/null || exit
        words=()
    done
}

main "$@"
