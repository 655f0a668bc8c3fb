#!/usr/bin/env bash
# Make this machine ready for lightrail: Debian packages, and a .venv in the checkout.
#
#     sudo bash vagrant/provision.sh [--cluster] [--jax] [--latest]
#
# Root in a container has no sudo and needs none: leave the word out, here and in all that is documented.
# Python packages are those of requirements.lock, each held to a hash. With --latest they are the newest that the
# ranges of pyproject.toml permit, unpinned; a later run without it goes back to the lock.
# With --cluster also Ray (docs/reference/cluster.md; requirements-cluster.lock), with --jax also JAX for programs on
# hosts (docs/howto/programs_on_hosts.md; requirements-jax.lock); a later run without these words keeps both.
# The one install script, for bare metal, CI, a virtual machine and a chroot; Debian 12 and Ubuntu 24.04.
# Run it as often as you like: when nothing is missing it says nothing. Indexes, proxies and certificates are
# pip's and apt's own business and are left as they are configured.
set -euo pipefail

PACKAGES=(
    mininet             # mnexec and mn
    openvswitch-switch
    iproute2 ethtool iperf iperf3 iputils-ping procps
    openmpi-bin python3-mpi4py python3-numpy mptcpize tcpdump # for applications on hosts
    python3-venv
    gcc libc6-dev python3-dev # compile the engine
    python-is-python3   # `sudo python scenarios/x.py` finds a python
    ca-certificates
)
POLICY=/usr/sbin/policy-rc.d
SAVED_POLICY=$POLICY.before-lightrail
PYTHON=/usr/bin/python3 # the system's, whatever is first on PATH
RESTRICTED=/proc/sys/kernel/apparmor_restrict_unprivileged_userns
PROFILE=/etc/apparmor.d/lightrail-unshare
LOCKS=/run/lightrail
AT_BOOT=/etc/tmpfiles.d/lightrail.conf

checkout=$(cd "$(dirname "$0")/.." && pwd -P)
venv=$checkout/.venv
stamp=$venv/.provisioned

fail() {
    echo "provision.sh: $*" >&2
    exit 2
}

main() {
    [[ $EUID -eq 0 ]] || fail "must run as root; try: sudo bash vagrant/provision.sh"
    [[ -x /usr/bin/apt-get && -x /usr/bin/dpkg-query ]] ||
        fail "needs a Debian-like system with apt-get; it is made for Debian 12 and Ubuntu 24.04."
    local option
    for option; do
        case $option in
        --cluster | --jax | --latest) ;;
        *) fail "unknown option $option; see the top of this file." ;;
        esac
    done
    exec 9<"$0"
    flock 9 # a second run waits for the first
    install_debian_packages
    allow_user_namespaces
    share_lock
    install_venv "$@"
    compile_engine
}

install_debian_packages() {
    local missing
    restore_policy
    mapfile -t missing < <(missing_packages)
    [[ ${#missing[@]} -gt 0 ]] || return 0
    echo "Installing Debian packages: ${missing[*]}"
    local enabled_before
    enabled_before=$(enabled_services)
    trap restore_policy EXIT
    forbid_service_starts
    apt update || fail "apt-get update failed; see its message above."
    apt install "${missing[@]}" ||
        fail "apt-get could not install ${missing[*]}; see its message above (on Ubuntu, is 'universe' enabled?)."
    restore_policy
    trap - EXIT
    disable_services_not_in "$enabled_before"
}

missing_packages() {
    local package
    for package in "${PACKAGES[@]}"; do
        [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null) == ?i* ]] || echo "$package"
    done
}

apt() { # quiet unless it fails
    local action=$1 output
    shift
    output=$(DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
        -o APT::Install-Recommends=false "$action" "$@" 2>&1 </dev/null) || {
        echo "$output" >&2
        return 1
    }
}

# A package's scripts ask policy-rc.d before they start a service; 101 means "not allowed". Anything that runs already
# keeps running. A policy that the machine had is put back; should this run be killed, by the next one.
forbid_service_starts() {
    [[ ! -e $POLICY ]] || mv "$POLICY" "$SAVED_POLICY"
    printf '#!/bin/sh\n# lightrail: until provision.sh ends\nexit 101\n' >"$POLICY"
    chmod 755 "$POLICY"
}

restore_policy() {
    if grep -qs '^# lightrail: until provision.sh ends' "$POLICY"; then rm -f "$POLICY"; fi
    [[ ! -e $SAVED_POLICY ]] || mv "$SAVED_POLICY" "$POLICY"
}

# Lightrail starts an Open vSwitch of its own per run; the machine's one is started at boot only where it was before.
enabled_services() {
    find /etc/systemd/system/*.target.wants /etc/rc[2-5].d -type l \( -name 'openvswitch*.service' -o -name 'ovs*.service' \
        -o -name 'S[0-9][0-9]openvswitch*' \) -printf '%f\n' 2>/dev/null |
        sed -E 's/^S[0-9]{2}//; s/\.service$//' | sort -u
}

disable_services_not_in() {
    local service
    while read -r service; do
        if command -v systemctl >/dev/null; then systemctl --quiet disable "$service" >/dev/null 2>&1 || true; fi
        if [[ -e /etc/init.d/$service ]]; then update-rc.d "$service" disable >/dev/null 2>&1 || true; fi
    done < <(comm -13 <(echo "$1") <(enabled_services))
}

# Ubuntu 24.04 refuses user namespaces to programs that no profile allows them. With this one any user's `unshare` may
# make them, as on Debian; root needs none.
allow_user_namespaces() {
    [[ $(cat "$RESTRICTED" 2>/dev/null) == 1 && ! -e $PROFILE ]] || return 0
    echo "Allowing unshare to make user namespaces: $PROFILE"
    cat >"$PROFILE" <<'END'
abi <abi/4.0>,
include <tunables/global>

profile lightrail-unshare /usr/bin/unshare flags=(unconfined) {
  userns,
}
END
    apparmor_parser --replace "$PROFILE" || {
        rm "$PROFILE"
        fail "AppArmor does not take the profile; see its message above."
    }
}

# The lock by which emulations of all users wait for each other: a file of root's, made now and at each boot.
share_lock() {
    install -d -m 755 "$LOCKS"
    [[ -e $LOCKS/lock ]] || install -m 644 /dev/null "$LOCKS/lock"
    [[ ! -d ${AT_BOOT%/*} ]] ||
        printf '%s\n' "d $LOCKS 0755 root root" "f $LOCKS/lock 0644 root root" >"$AT_BOOT"
}

install_venv() {
    local wanted extras
    wanted=$(venv_key "$@")
    extras=$(tail -n 1 <<<"$wanted")
    [[ $(cat "$stamp" 2>/dev/null) != "$wanted" ]] || return 0
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "needs Python 3.11 or newer as $PYTHON, found $("$PYTHON" -V 2>&1)."
    echo "Installing Python packages into $venv"
    # --clear when another Python or another checkout made it, or other pins; else pip adds what is missing.
    if [[ $(sed -n 1,2p "$stamp" 2>/dev/null) != "$(sed -n 1,2p <<<"$wanted")" ]]; then
        [[ ! -L $venv ]] || rm "$venv" # a link to another's, whose files stay
        "$PYTHON" -m venv --clear "$venv" || fail "could not make the virtual environment $venv."
    fi
    cd "$checkout"
    "install_$(sed -n 2p <<<"$wanted")" "$extras"
    "$venv/bin/python" -m compileall -qq -j 0 "$venv/lib" || true # what cannot be compiled is not imported
    echo "$wanted" >"$stamp"
    hand_back "$venv" "$checkout"/*.egg-info
    command -v sudo >/dev/null || echo "There is no sudo here: as root, leave it out of the commands in README.md and docs/."
}

# An isolated build would fetch what no hash holds. So setuptools is first, and what comes as source alone, the checkout
# too, is built with it.
install_locked() { # extras
    local files=(--requirement requirements.lock)
    local extra
    for extra in cluster jax; do
        [[ ,$1, != *,$extra,* ]] || files+=(--requirement "requirements-$extra.lock")
    done
    if ! {
        pip --require-hashes --requirement <(sed -n '/^setuptools==/,/[^\\]$/p' requirements.lock) &&
            pip --require-hashes --no-build-isolation --use-pep517 "${files[@]}" &&
            pip --no-deps --no-build-isolation --editable .
    }; then
        fail "pip could not install what requirements.lock names; see its message above (--latest goes without the lock)."
    fi
}

install_latest() { # extras
    pip --editable ".[$1]" || fail "pip could not install the packages that pyproject.toml names; see its message above."
}

pip() { # compiles one file after the other; all CPUs together, afterwards, take a quarter of the minute less
    "$venv/bin/python" -m pip install -qq --no-compile "$@" </dev/null
}

venv_key() { # lines 1 and 2: what the .venv is made of; lines 3 and 4: what is installed in it
    local extras=dev,docs pins=locked extra had
    had=$(tail -n 1 "$stamp" 2>/dev/null || true)
    for extra in cluster jax; do
        [[ ,$had, != *,$extra,* && " $* " != *" --$extra "* ]] || extras+=,$extra
    done
    [[ " $* " != *" --latest "* ]] || pins=latest
    echo "$("$PYTHON" -VV) $checkout"
    echo "$pins"
    cat "$checkout/pyproject.toml" "$checkout"/requirements*.lock | sha256sum
    echo "$extras"
}

# Each state of the sources is compiled once. Where that fails, emulations run all the same, and say so.
compile_engine() {
    "$venv/bin/python" -B "$checkout/vagrant/compile_engine.py" || echo "provision.sh: the engine stays interpreted." >&2
    [[ ! -e $venv/lightrail-engine ]] || hand_back "$venv/lightrail-engine"
}

hand_back() { # paths: under sudo the checkout belongs to the one who called
    [[ -n ${SUDO_UID:-} ]] || return 0
    chown -R "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" "$@"
}

main "$@"
