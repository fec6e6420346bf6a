#!/usr/bin/env bash
# boot.sh SCRIPT MACHINE: run SCRIPT as root in a guest with cgroup v2; exit with SCRIPT's status, or 1 if it did not end.
#   MACHINE       16 | 32 CPUs: 2 sockets, 4 NUMA nodes with an L3 each, SMT (siblings are 0-1, 2-3, ...)
#                 4 CPUs: 2 sockets with a NUMA node and a core each; the fastest, because all CPUs share the host's
#   KERNEL_SUITE  the Debian suite of the kernel; default: the host's (bookworm: Linux 6.1, trixie: 6.12)
#   INIT          shell | systemd: what is process 1; default: a shell
#   TIMEOUT       seconds until the guest is ended; default 600
# The guest sees the host's root file system read-only, with a layer in memory on top: nothing that it writes stays.
# qemu emulates every instruction (TCG), because KVM is missing where this runs.
source "$(dirname "$(realpath "$0")")/../lab.sh"
usage="usage: boot.sh SCRIPT 4|16|32"
script=$(realpath "${1:?$usage}") machine=${2:?$usage}
kernel=$LAB/guest/${KERNEL_SUITE:-$host_suite}
# cx16=off: qemu 7.2 sometimes emulates cmpxchg16b wrongly, and Linux 6.12 then crashes while it boots (3 of 8 times).
# With vendor GenuineIntel, Linux reads the topology from the CPUID leaves that qemu fills in completely.
# level=30: qemu 10 aborts when CPUID leaf 31 is read, which tells of dies; their caches and NUMA nodes do not need it.
cpu=max,vendor=GenuineIntel,cx16=off,level=30
case $machine in
  4) smp=4,sockets=2,cores=1,threads=2 nodes=(0-1 2-3) ;;
  16) smp=16,sockets=2,dies=2,cores=2,threads=2 nodes=(0-3 4-7 8-11 12-15) ;;
  32) smp=32,sockets=2,dies=2,cores=4,threads=2 nodes=(0-7 8-15 16-23 24-31) ;;
  *) die "$usage" ;;
esac
memory=6144  # MiB

command -v qemu-system-x86_64 >/dev/null || die "qemu-system-x86_64 is missing: run tools/packages"
"$lab_src/guest/mkinitramfs.sh" >&2
work=$(mktemp -d "$LAB/guest/run.XXXXXX")
trap 'kill ${virtiofsd:-} 2>/dev/null || true; rm -rf "$work"' EXIT

# serve_files SOCKET: let the guest read the host's files. Debian 12 has qemu's own virtiofsd, with other options.
serve_files() {
  ulimit -n "$(ulimit -Hn)"  # it keeps a file open for each one that the guest has looked at
  if [ -x /usr/libexec/virtiofsd ]; then
    # A directory that is announced as a mount point cannot be below an overlay.
    exec /usr/libexec/virtiofsd --socket-path="$1" --shared-dir=/ --no-announce-submounts --cache=always \
      --sandbox=chroot --thread-pool-size=4
  elif [ -x /usr/lib/qemu/virtiofsd ]; then
    exec /usr/lib/qemu/virtiofsd --socket-path="$1" -o source=/ -o cache=always -o sandbox=chroot --thread-pool-size=4
  fi
  die "virtiofsd is missing: run tools/packages"
}
serve_files "$work/fs.sock" >"$work/virtiofsd.log" 2>&1 &
virtiofsd=$!
until [ -S "$work/fs.sock" ]; do
  kill -0 $virtiofsd 2>/dev/null || die "virtiofsd ended: $(cat "$work/virtiofsd.log")"
  sleep 0.05
done

# Shared memory (memfd): virtiofsd reads and writes the guest's buffers.
numa=()
for id in "${!nodes[@]}"; do
  numa+=(-object "memory-backend-memfd,id=m$id,size=$((memory / ${#nodes[@]}))M,share=on"
    -numa "node,nodeid=$id,cpus=${nodes[id]},memdev=m$id")
done

# no_timer_check: the kernel would panic if its timer test is late, which it is while the host is busy.
# sed removes carriage returns, what the firmware prints, and the kernel's last line.
timeout "${TIMEOUT:-600}" qemu-system-x86_64 -accel tcg,thread=multi,tb-size=512 -machine q35 \
  -nodefaults -nographic -no-reboot -serial stdio -m "${memory}M" -cpu "$cpu" -smp "$smp" "${numa[@]}" \
  -chardev "socket,id=fs,path=$work/fs.sock" -device vhost-user-fs-pci,chardev=fs,tag=host \
  -kernel "$kernel/vmlinuz" -initrd "$kernel/initramfs" \
  -append "console=ttyS0 quiet panic=-1 nokaslr no_timer_check mitigations=off SCRIPT=$script LAB=$LAB INIT=${INIT:-shell}" \
  </dev/null 2>"$work/qemu.log" |
  sed -u -e 's/\r$//' -e '/SeaBIOS/d' -e 's/^.*\x1b\[2J//' -e '/^\[.*Power \(down\|Off\)/d' |
  tee "$work/console" || true
status=$(sed -n 's/^guest: exit \([0-9]*\)$/\1/p' "$work/console" | tail -n 1)
[ -n "$status" ] || { cat "$work/qemu.log" >&2; die "the guest did not end its script within ${TIMEOUT:-600} s"; }
exit "$status"
