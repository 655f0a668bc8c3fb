# What fresh_machine.sh and vm.sh share: a bare system in a folder that lasts as long as the script. Both source this.
#
# The folder becomes the root of mount and PID namespaces of its own, so mounts and processes end with them. How this
# machine reaches its package indexes (apt's sources and options, pip's configuration, proxies, certificates) is
# carried over as it is.
# shellcheck shell=bash

CARRIED='^(PIP_[A-Z_]*|[a-z]+_proxy|[A-Z]+_PROXY|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|CI)='
CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
ON_A_LEASH=(setpriv --pdeathsig KILL) # a process that dies with this script, even when that is killed

checkout=$(cd "$(dirname "$0")/.." && pwd -P)

fail() {
    echo "${0##*/}: $*" >&2
    exit 2
}

report() {
    printf '%4d s  %s\n' "$SECONDS" "$*" >&2
}

need() { # program, package
    command -v "$1" >/dev/null || fail "needs $1; try: apt-get install $2"
}

need_bare_machine() {
    [[ $EUID -eq 0 ]] || fail "must run as root; try: sudo bash vagrant/${0##*/}"
    need debootstrap debootstrap
    need git git
    committed rev-parse --quiet --verify HEAD >/dev/null || fail "runs what is committed; $checkout is no git checkout."
}

committed() { # git's command; the checkout belongs to the one who called sudo
    git -c safe.directory='*' -C "$checkout" "$@"
}

# Sets $folder, and $machine in it. The folder is removed once the last process that has this script's end of a pipe
# is gone, which the kernel closes whatever ended them. Another file, in the making elsewhere, goes with the folder.
temporary_folder() { # [file]
    local end
    folder=$(mktemp -d "${TMPDIR:-/var/tmp}/machine-of-lightrail.XXXXXX")
    coproc REMOVER {
        exec setsid bash -c 'cat; rm -rf --one-file-system "$@"' bash "$folder" "$@" >/dev/null 2>&1
    }
    remover=$REMOVER_PID
    end=${REMOVER[1]}
    exec {alive}>&"$end" {end}>&-
    trap clean_up EXIT
    machine=$folder/root
    mkdir -m 755 "$machine" # it will be /
}

clean_up() { # killing the first process of a PID namespace kills all of them, and the mounts go with the last
    { kill -KILL "${running:-}" && wait "$running"; } 2>/dev/null || true
    exec {alive}>&-
    wait "$remover"
}

in_namespaces() { # command
    "${ON_A_LEASH[@]}" unshare --mount --pid --fork --kill-child --propagation private -- "$@" &
    running=$!
    wait "$running"
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
    [[ -n $mirror ]] || fail "no mirror of $1 in this machine's apt sources; name one with $MIRROR_OPTION."
    report "Making a bare $1"
    in_namespaces debootstrap --variant=minbase --components="$components" "$1" "$machine" "$mirror" "${script[@]}" \
        >"$folder/log" 2>&1 || {
        tail -n 20 "$folder/log" >&2
        fail "debootstrap could not make a bare $1; see its last lines above."
    }
    [[ -n $3 ]] || return 0
    tar -c -f "$3.$$" -C "$machine" .
    mv "$3.$$" "$3"
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

unpack_checkout() { # folder
    mkdir -p "$1"
    committed archive HEAD | tar -x -C "$1"
}

run_inside() { # function of this script, its arguments
    in_namespaces bash -euo pipefail -c "$(declare -f); enter \"\$@\"" "$0" "$machine" "$@"
}

# From here on in the namespaces. pivot_root rather than chroot: no user namespace can be made in a chroot.
enter() { # machine, function, its arguments
    cd "$1" || exit
    mount --bind . .
    cd "$1" || exit
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
        /bin/bash -uo pipefail -c "$(declare -f); leave_host; \"\$@\"" "$0" "${@:2}" </dev/null
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

leave_host() {
    umount -l /.host && rmdir /.host
    cd /lightrail || exit 1
}
