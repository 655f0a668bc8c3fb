#!/usr/bin/env bash
# Run a command of this checkout on a stock kernel: Debian 12 in a virtual machine that lasts as long as the command.
#
#     sudo bash vagrant/vm.sh [OPTION ...] -- COMMAND [ARGUMENT ...]
#     sudo bash vagrant/vm.sh -- python scenarios/rails_sparse.py --servers 4 --rails 2
#     sudo bash vagrant/vm.sh -u -- .venv/bin/pytest tests/emulation -m 'not real_cpus'
#
#     -u          run the command as an ordinary user; default: as root
#     -o FOLDER   where the results go; default: results/ of this checkout
#     -c FILE     keep the disk there, and boot it the next time
#     -s CPUS     default: 2
#     -m MIB      memory; default: 4096
#     -M MIRROR   where debootstrap finds Debian 12; default: as in this machine's apt sources
#
# It runs what is committed (HEAD), in /lightrail, and exits with the command's exit code. Variables named LIGHTRAIL_*
# reach the command; what it leaves in results/ comes back, and nothing else stays. The machine has no network. With
# KVM it is as fast as this one; without, qemu emulates the CPU: some fourteen times slower, so tests that need real CPUs
# are left out by -m 'not real_cpus'.
set -euo pipefail

MIRROR_OPTION=-M
# shellcheck source=vagrant/_bare_machine.sh
source "$(dirname "$0")/_bare_machine.sh"

SUITE=bookworm
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
BOOT_S=300 # six to ten times what it takes without KVM
KEY=/etc/lightrail-disk
UNREAD=(/usr/share/{doc,info,locale,man})
# Drivers of devices that the machine has not: 0.2 GB.
UNUSED=('/lib/modules/*/kernel/'{sound,drivers/{gpu,hwmon,iio,infiniband,media,net/{ethernet,wireless},scsi,staging}})

main() {
    local user=root results='' cache='' cpus=2 mib=4096 mirror=''
    results=$checkout/results
    while getopts ':uo:c:s:m:M:' option; do
        case $option in
        u) user=lightrail ;;
        o) results=$OPTARG ;;
        c) cache=$OPTARG ;;
        s) cpus=$OPTARG ;;
        m) mib=$OPTARG ;;
        M) mirror=$OPTARG ;;
        :) fail "-$OPTARG needs a value; see the top of this file." ;;
        *) fail "unknown option -$OPTARG; see the top of this file." ;;
        esac
    done
    shift $((OPTIND - 1))
    [[ $# -gt 0 ]] || fail "needs a command; try: sudo bash vagrant/vm.sh -- python scenarios/rails_sparse.py"
    [[ $cpus =~ ^[1-9][0-9]*$ ]] || fail "-s needs a number of CPUs, not '$cpus'."
    [[ $mib =~ ^[1-9][0-9]*$ ]] || fail "-m needs a number of MiB, not '$mib'."
    [[ $(uname -m) == x86_64 ]] || fail "needs an x86-64 machine, not $(uname -m)."
    need_bare_machine
    need mkfs.ext4 e2fsprogs
    need qemu-system-x86_64 qemu-system-x86
    [[ -e $KEYRING ]] || fail "needs the keys of Debian's archive; try: apt-get install debian-archive-keyring"
    [[ -z $cache || -d $(dirname "$cache") ]] || fail "cannot keep a disk in $cache; there is no such folder."
    temporary_folder ${cache:+"$cache.$$"}
    disk=$folder/disk
    find_disk "$cache" "$mirror"
    write_job "$user" "$@"
    boot "$cpus" "$mib"
    bring_results "$results"
    return "$code"
}

# A disk fits as long as the scripts that made it and the packages that it holds are the same.
find_disk() { # cache mirror
    local key
    key=$(committed rev-parse HEAD:vagrant HEAD:pyproject.toml HEAD:requirements.lock)
    if [[ -n $1 && -e $1 ]]; then
        if [[ $(debugfs -R "cat $KEY" "$1" 2>/dev/null) == "$key" ]]; then
            disk=$1
            return
        fi
        report "The disk in $1 is of another checkout; making it anew"
    fi
    make_disk "$key" "$2"
    [[ -n $1 ]] || return 0
    cp --sparse=always "$disk" "$1.$$"
    hand_back "$1.$$"
    mv "$1.$$" "$1"
}

make_disk() { # key mirror
    mkdir -p "$machine/etc/dpkg/dpkg.cfg.d"
    {
        echo force-unsafe-io
        printf 'path-exclude=%s/*\n' "${UNREAD[@]}" "${UNUSED[@]}"
    } >"$machine/etc/dpkg/dpkg.cfg.d/lightrail"
    bare_system "$SUITE" "$2" ''
    carry_apt_and_certificates "$SUITE" "$2"
    carry_pip
    unpack_checkout "$machine/lightrail"
    report "Installing a kernel and lightrail's packages"
    run_inside install_machine "${UNREAD[@]}" >"$folder/log" 2>&1 || {
        tail -n 20 "$folder/log" >&2
        fail "could not install the machine's packages; see the last lines above."
    }
    echo "$1" >"$machine$KEY"
    report "Making the disk"
    truncate -s 8G "$disk"
    mkfs.ext4 -q -m 0 -O ^has_journal -d "$machine" "$disk"
    rm -rf --one-file-system "$machine" & # while the machine boots
}

install_machine() { # what nobody reads
    set -e
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d # no service starts here
    chmod 755 /usr/sbin/policy-rc.d
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q update
    # INITRD: the one that the kernel's package would make holds drivers for all machines.
    INITRD=No apt-get -q -y --no-install-recommends install \
        systemd-sysv udev kmod procps iproute2 sudo initramfs-tools linux-image-amd64
    PIP_NO_COMPILE=1 bash vagrant/provision.sh
    # On all CPUs, which pip does not. Some packages hold files for other versions of Python.
    .venv/bin/python -m compileall -q -j 0 .venv/lib >/dev/null || true
    rm /usr/sbin/policy-rc.d
    apt-get clean
    make_bootable
    useradd --create-home --shell /bin/bash lightrail
    rm -rf "$@" # what debootstrap unpacked without dpkg
    # What was carried over to install with, and may hold passwords; and this checkout, but for its .venv.
    rm -rf /.carried /etc/apt/{auth.conf*,apt.conf.d/00host} /etc/pip.conf /root/{.config,.pip,.cache} /var/lib/apt/lists/*
    find /lightrail -mindepth 1 -maxdepth 1 ! -name .venv ! -name '*.egg-info' -exec rm -rf {} +
}

# Without KVM a second of this machine is some ten of the other's: its kernel is unpacked here, and udev, which would
# look at all devices once in the initial file system and once after it, does so after it only.
make_bootable() {
    rm /usr/share/initramfs-tools/{hooks,scripts/init-{top,bottom}}/udev
    printf '%s\n' virtio_pci virtio_blk ext4 crc32c_generic >>/etc/initramfs-tools/modules
    echo MODULES=list >/etc/initramfs-tools/conf.d/lightrail
    mkinitramfs -o /boot/initrd "$(basename /lib/modules/*)"
    unpacked_kernel /boot/vmlinuz-* >/boot/vmlinux
    echo lightrail >/etc/hostname
    echo '127.0.0.1 localhost lightrail' >/etc/hosts
    # Nobody logs in, and nothing starts by itself beside the command.
    systemctl mask getty-static.service getty@tty1.service serial-getty@ttyS0.service e2scrub_reap.service timers.target
    cat >/etc/systemd/system/job.service <<'UNIT'
[Unit]
Description=The command that vm.sh was given
After=multi-user.target
SuccessAction=poweroff-immediate
FailureAction=poweroff-immediate
[Service]
ExecStart=/bin/sh -c 'tar -x -f /dev/vdb -C / && exec bash /run/job/agent'
Delegate=yes
StandardError=journal+console
[Install]
WantedBy=multi-user.target
UNIT
    systemctl enable job.service
}

unpacked_kernel() { # file; its fields are those of the kernel's x86 boot protocol
    python3 - "$1" <<'PYTHON'
import lzma, pathlib, struct, sys
kernel = pathlib.Path(sys.argv[1]).read_bytes()
sectors, (offset, size) = kernel[0x1F1] or 4, struct.unpack_from("<II", kernel, 0x248)
start = (sectors + 1) * 512 + offset
sys.stdout.buffer.write(lzma.LZMADecompressor().decompress(kernel[start : start + size]))
PYTHON
}

# The job is a drive, with the checkout and two scripts: what this machine tells the other.
write_job() { # user, command
    local id=0 job=$folder/job
    [[ $1 == root ]] || id=1000
    unpack_checkout "$job/lightrail"
    mkdir -p "$job/run/job"
    {
        declare -f agent sorts
        printf '%q ' agent "$1" "${SUDO_UID:-0}" "${SUDO_GID:-0}"
    } >"$job/run/job/agent"
    {
        echo 'export LANG=C.UTF-8'
        env -0 | while IFS= read -r -d '' variable; do
            [[ $variable != LIGHTRAIL_* ]] || printf 'export %q\n' "$variable"
        done
        printf '%q ' "${@:2}"
    } >"$job/run/job/command"
    tar -c -f "$job.tar" --numeric-owner --owner="$id" --group="$id" -C "$job" lightrail run/job
}

# Ports of the machine: `out` and `err` are streams of the caller's, `results` is a file, and on `status` come two
# lines, one when the command starts and one with its exit code.
boot() { # cpus mib
    local out err status out_cat err_cat answer
    debugfs -R "dump /boot/vmlinux $folder/vmlinux" "$disk" 2>/dev/null
    debugfs -R "dump /boot/initrd $folder/initrd" "$disk" 2>/dev/null
    choose_cpu
    report "Booting ($cpu)"
    # Through pipes, because qemu would open what stands behind them a second time, and not wait for it.
    exec {out}> >(exec cat {alive}>&-)
    out_cat=$!
    exec {err}> >(exec cat >&2 {alive}>&-)
    err_cat=$!
    local arguments=(
        -accel "$accelerator" -cpu "$cpu" -smp "$1" -m "$2" -display none -no-reboot -nodefaults
        -kernel "$folder/vmlinux" -initrd "$folder/initrd"
        -append "root=/dev/vda rw console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0"
        -drive "file=$disk,if=virtio,format=raw,cache=unsafe,snapshot=on"
        -drive "file=$folder/job.tar,if=virtio,format=raw,readonly=on"
        -serial "file:$folder/console"
        -device virtio-rng-pci -device virtio-serial-pci
        -chardev "file,id=status,path=/dev/fd/1" -chardev "file,id=results,path=$folder/results"
        -chardev "file,id=out,path=/dev/fd/$out" -chardev "file,id=err,path=/dev/fd/$err"
    )
    for port in status results out err; do
        arguments+=(-device "virtserialport,chardev=$port,name=$port")
    done
    exec {status}< <(TMPDIR=$folder exec "${ON_A_LEASH[@]}" qemu-system-x86_64 "${arguments[@]}" \
        2>"$folder/qemu" </dev/null)
    running=$!
    read -r -t "$BOOT_S" -u "$status" answer || machine_failed "the virtual machine did not come up"
    [[ $answer == up ]] || fail "numpy does not sort on the CPU that this qemu emulates; try another version of qemu."
    report "Running the command"
    read -r -u "$status" code || machine_failed "the virtual machine ended before the command did"
    kill -KILL "$running"
    exec {err}>&- {status}<&-
    wait "$err_cat" || true
    exec {out}>&-
    wait "$out_cat" || true
}

# A /dev/kvm is not enough: a machine that is itself virtual may have one that no stock kernel boots on.
# Without AVX, because qemu 7.2 emulates it so that numpy's argsort does not sort.
choose_cpu() {
    accelerator=tcg,thread=multi cpu=max,-avx,-avx2,-fma,-f16c
    if grep -qwE 'vmx|svm' /proc/cpuinfo && { : >/dev/kvm; } 2>/dev/null; then
        accelerator=kvm cpu=host
    fi
}

machine_failed() { # what happened
    tail -n 20 "$folder/console" "$folder/qemu" >&2 || true # qemu may have refused to start
    fail "$1; see the last lines of its console above."
}

bring_results() { # folder
    [[ -s $folder/results ]] || return 0
    mkdir -p "$1"
    tar -x --numeric-owner -f "$folder/results" -C "$1"
    report "The results are in $1"
}

hand_back() { # under sudo files belong to the one who called
    [[ -z ${SUDO_UID:-} ]] || chown "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" "$1"
}

# From here on in the virtual machine.
agent() { # user, owner of the results, their group
    local group=/sys/fs/cgroup/system.slice/job.service/command ports=/dev/virtio-ports
    local out err code=0
    set -e
    cd /lightrail
    udevadm wait --timeout=60 $ports/{status,results,out,err}
    exec 3>$ports/status
    if ! sorts; then
        echo unsound >&3
        exit 1
    fi
    echo up >&3
    # Through pipes, because a port can be opened only once, and programs do open /dev/stderr.
    exec 4> >(exec cat >$ports/out)
    out=$!
    exec 5> >(exec cat >$ports/err 4>&-)
    err=$!
    chown "$1" /dev/fd/{4,5}
    mkdir "$group"
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        exec setpriv --reuid "$1" --regid "$1" --init-groups --reset-env /bin/bash /run/job/command
    ) >&4 2>&5 3>&- 4>&- 5>&- || code=$?
    echo 1 >"$group/cgroup.kill" # what the command left running would keep its output open
    exec 4>&- 5>&-
    wait "$out" "$err"
    [[ ! -d results ]] || tar -c --numeric-owner --owner="$2" --group="$3" -C results . >$ports/results
    echo "$code" >&3
}

sorts() {
    .venv/bin/python -c '
import numpy as np
rng = np.random.default_rng(0)
for kind in "f8", "f4", "i8", "i4":
    for size in 10, 1000, 100_000:
        numbers = (rng.random(size) * 1e6).astype(kind)
        assert (np.diff(numbers[np.argsort(numbers)]) >= 0).all()
        assert (np.diff(np.sort(numbers)) >= 0).all()
'
}

main "$@"
