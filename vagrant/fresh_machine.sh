#!/usr/bin/env bash
# Prove the README's two commands on a bare machine: debootstrap, then provision, main job, tests.
#
#     sudo bash vagrant/fresh_machine.sh [-s SUITE] [-m MIRROR] [-c TARBALL] [-- OPTION OF rails_sparse.py ...]
#
#     -s SUITE    bookworm or noble; default: this machine's own
#     -m MIRROR   where debootstrap finds SUITE; default: as in this machine's apt sources
#     -c TARBALL  keep the bare system there, and take it from there the next time
#
# The machine is a folder that lasts as long as this command. It becomes the root of mount and PID namespaces of its
# own, so mounts and processes end with them. It runs what is committed (HEAD). How this machine reaches its package
# indexes (apt's sources and options, pip's configuration, proxies, certificates) is carried over as it is.
set -euo pipefail

CARRIED='^(PIP_[A-Z_]*|[a-z]+_proxy|[A-Z]+_PROXY|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|CI)='
CERTIFICATES=/etc/ssl/certs/ca-certificates.crt

fail() {
    echo "fresh_machine.sh: $*" >&2
    exit 2
}

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
    [[ $EUID -eq 0 ]] || fail "must run as root; try: sudo bash vagrant/fresh_machine.sh"
    command -v debootstrap >/dev/null || fail "needs debootstrap; try: sudo apt-get install debootstrap"
    checkout=$(cd "$(dirname "$0")/.." && pwd -P)
    machine=$(mktemp -d /var/tmp/lightrail-machine.XXXXXX)
    trap clean_up EXIT
    bare_system "$suite" "$mirror" "$tarball"
    chmod 755 "$machine" # mktemp made it for root's eyes only; it will be /
    carry_apt_and_certificates "$suite" "$mirror"
    carry_pip
    mkdir "$machine/lightrail"
    git -c safe.directory='*' -C "$checkout" archive HEAD | tar -x -C "$machine/lightrail"
    run_inside "$@"
}

bare_system() { # suite mirror tarball
    local components=main mirror=$2 script=()
    if [[ -n $3 && -e $3 ]]; then
        tar -x -f "$3" -C "$machine"
        return
    fi
    if [[ $1 == noble ]]; then
        components=main,universe # Ubuntu keeps Mininet in universe
        script=(gutsy)           # which every Ubuntu since uses; Debian 12's debootstrap does not know noble yet
    fi
    [[ -n $mirror ]] || mirror=$(host_mirror "$1")
    [[ -n $mirror ]] || fail "no mirror of $1 in this machine's apt sources; name one with -m."
    echo "Making a bare $1"
    debootstrap --variant=minbase --components="$components" "$1" "$machine" "$mirror" "${script[@]}" \
        >"$machine.log" 2>&1 || {
        tail -n 20 "$machine.log" >&2
        fail "debootstrap could not make a bare $1; see its last lines above."
    }
    [[ -z $3 ]] || tar -c -f "$3" -C "$machine" .
}

host_mirror() { # suite
    apt-get indextargets --format "\$(RELEASE) \$(COMPONENT) \$(REPO_URI)" 'Created-By: Packages' |
        sed -n "s/^$1 main //p" | sed -n 1p
}

carry_apt_and_certificates() { # suite mirror
    local path
    if [[ -z $2 ]]; then
        rm -f "$machine/etc/apt/sources.list"
        for path in /etc/apt/{sources.list,sources.list.d,auth.conf,auth.conf.d,keyrings,trusted.gpg,trusted.gpg.d} \
            /usr/share/keyrings; do
            [[ ! -e $path ]] || cp -a --parents "$path" "$machine"
        done
    fi
    # Options for fetching, and not apt.conf.d itself: its hooks call programs that a bare machine has not.
    apt-config dump | grep '^Acquire::' >"$machine/etc/apt/apt.conf.d/00host"
    cp -L /etc/resolv.conf "$machine/etc/resolv.conf"
    # As single certificates too: installing ca-certificates makes the bundle anew, from these.
    [[ -e $CERTIFICATES ]] || return 0
    mkdir -p "$machine/usr/local/share/ca-certificates" "$machine/etc/ssl/certs"
    cp -L "$CERTIFICATES" "$machine$CERTIFICATES"
    awk -v out="$machine/usr/local/share/ca-certificates/host" \
        '/BEGIN CERT/ { file = out (++n) ".crt" } file { print >file } /END CERT/ { close(file); file = "" }' "$CERTIFICATES"
}

carry_pip() { # its configuration and environment, and the local files and folders that these name
    local path
    for path in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
        [[ ! -e $path ]] || install -D -m 644 "$path" "$machine${path/#$HOME//root}"
    done
    mkdir -p "$machine/.carried"
    env | grep -E "$CARRIED" >"$machine/.carried/environment" || true
    cat "$machine/.carried/environment" "$machine"{/etc/pip.conf,/root/{.config/pip,.pip}/pip.conf} 2>/dev/null |
        grep -oE '(file://)?/[^ ,"]+' | sort -u >"$machine/.carried/paths" || true
    while read -r path; do
        [[ ! -f $path || -e $machine$path ]] || cp -L --parents "$path" "$machine"
    done <"$machine/.carried/paths"
}

run_inside() { # options of the scenario
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --propagation private \
        bash -euo pipefail -c "$(declare -f enter mount_pip_folders prove timed); enter \"\$@\"" \
        fresh_machine.sh "$machine" "$@" &
    running=$!
    wait "$running"
}

clean_up() { # killing the first process of a PID namespace kills all of them, and the mounts go with the last
    { kill -KILL "${running:-}" && wait "$running"; } 2>/dev/null || true
    rm -rf --one-file-system "$machine" "$machine.log"
}

# From here on in the namespaces. pivot_root rather than chroot: no user namespace can be made in a chroot.
enter() { # machine, options of the scenario
    cd "$1"
    mount --bind . .
    cd "$1"
    mount -t proc proc proc
    mount --rbind /sys sys
    mount --rbind /dev dev
    mount -t tmpfs tmpfs run
    mount_pip_folders
    mapfile -t environment <.carried/environment
    mkdir .host
    pivot_root . .host
    exec chroot . /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        LANG=C.UTF-8 TERM="${TERM:-dumb}" "${environment[@]}" \
        /bin/bash -uo pipefail -c "$(declare -f prove timed); prove \"\$@\"" fresh_machine.sh "${@:2}" </dev/null
}

mount_pip_folders() {
    local path
    while read -r path; do
        case $path in
        file://*) # an index stands beside the files that it links to
            path=$(dirname "${path#file://}")
            ;;
        esac
        [[ -d $path && $path != / && ! -d .$path ]] || continue
        mkdir -p ".$path"
        mount --rbind -o ro "$path" ".$path"
    done <.carried/paths
}

prove() { # options of the scenario
    local failed=0
    umount -l /.host && rmdir /.host
    cd /lightrail || exit 1
    timed "bash vagrant/provision.sh" bash vagrant/provision.sh || exit 1
    timed "python scenarios/rails_sparse.py $*" python scenarios/rails_sparse.py "$@" || failed=1
    timed "bash vagrant/provision.sh (again)" bash vagrant/provision.sh || failed=1
    timed ".venv/bin/pytest" .venv/bin/pytest || failed=1
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
