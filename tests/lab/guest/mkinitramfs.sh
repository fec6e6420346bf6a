#!/usr/bin/env bash
# mkinitramfs.sh: make vmlinuz and initramfs in $LAB/guest/SUITE, unless they are there and newer than the guest's init.
#   KERNEL_SUITE  the Debian suite of the kernel; default: the host's
#   INIT          with systemd: unpack Debian's systemd into $LAB/systemd, if the host has none
# The kernel is Debian's linux-image-cloud-amd64, downloaded and unpacked below $LAB; nothing is installed.
source "$(dirname "$(realpath "$0")")/../lab.sh"
suite=${KERNEL_SUITE:-$host_suite}
kernel=$LAB/kernel/$suite
out=$LAB/guest/$suite
modules="virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci fuse virtiofs overlay"
lock
if [ "${INIT:-}" = systemd ] && [ ! -x /lib/systemd/systemd ] && [ ! -d "$LAB/systemd" ]; then
  fetch_missing "$host_suite" "$LAB/systemd" systemd
fi
[ "$out/initramfs" -nt "$lab_src/guest/init" ] && exit

[ -d "$kernel" ] || fetch_debs "$suite" "$kernel" "$(newest "$suite" linux-image-cloud-amd64)"

root=$out/root
rm -rf "$out" && mkdir -p "$root"/{bin,dev,proc,sys,modules,lower,rw,new}
box=$(busybox)
cp "$box" "$root/bin/busybox"
install -m 755 "$lab_src/guest/init" "$root/init"
# In the order of loading. Modules that are built into the kernel have no file; newer suites compress them.
number=10
for module in $modules; do
  file=$(find "$kernel" -name "$module.ko*" -print -quit)
  [ -n "$file" ] || continue
  case $file in
    *.xz) xz -dc "$file" ;;
    *.zst) zstd -qdc "$file" ;;
    *) cat "$file" ;;
  esac >"$root/modules/$number-$module.ko"
  number=$((number + 1))
done
cp "$kernel"/boot/vmlinuz-* "$out/vmlinuz"
(cd "$root" && find . | "$box" cpio -o -H newc 2>/dev/null) | gzip -1 >"$out/initramfs.new"
rm -rf "$root" && mv "$out/initramfs.new" "$out/initramfs"
echo "$(basename "$kernel"/boot/vmlinuz-*), $(du -k "$out/initramfs" | cut -f1) KiB initramfs"
