#!/usr/bin/env bash
# provision.sh SUITE: unpack containerd of a Debian suite, runc and two images into $LAB, unless they are there.
#   bookworm  containerd 1.6, no NRI     trixie  containerd 1.7, NRI 0.6     sid  containerd 2.x, NRI 0.8 or newer
# Installs nothing and changes nothing outside $LAB. Needs root, because apt does.
source "$(dirname "$(realpath "$0")")/lab.sh"
suite=${1:?usage: provision.sh SUITE}
lock

if [ ! -x "$LAB/$suite/usr/bin/containerd" ]; then
  echo "containerd from $suite:"
  fetch_debs "$suite" "$LAB/$suite" containerd
  "$LAB/$suite/usr/bin/containerd" --version || die "containerd of $suite does not run on $host_suite"
fi
# runc is linked with the C library of its suite, so it comes from the host's. containerd, its shim and ctr run with
# glibc 2.34 or newer.
if [ ! -x "$LAB/runc/usr/sbin/runc" ]; then
  echo "runc from $host_suite:"
  fetch_debs "$host_suite" "$LAB/runc" runc
fi

mkdir -p "$LAB/images"
box=$(busybox)
for name in busybox pause; do
  image=$LAB/images/$name.tar
  [ -e "$image" ] || { python3 "$lab_src/mkimage.py" "$image.new" "localhost/$name:1" "$box" && mv "$image.new" "$image"; }
done
