#!/bin/sh
# Install, upgrade, remove and purge the package in the Debian system at $1, while a workload runs; print what is seen.
# $2 and $3 are two versions of the package. Runs in mount and pid namespaces of its own: all ends with this script.
set -eu
root=$1 first=$2 next=$3

inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
see() { printf '%s=%s\n' "$1" "$2"; }
files() { find "$root" -xdev \( -path "$root/var/lib/dpkg" -o -path "$root/var/log" -o -path "$root/tmp" -o -name '*.pyc' \
    -o -name __pycache__ -o -path "$root/etc/g*" -o -path "$root/etc/.pwd.lock" -o -path "$root/root" \) -prune -o -print | LC_ALL=C sort; }
until_true() { for _ in $(seq 200); do "$@" && return; sleep 0.1; done; echo "gave up: $*" >&2; exit 1; }
workload() { sed -n 's/^Cpus_allowed_list:\t//p' "/proc/$(pgrep -x -f 'sleep 4711')/status" 2>/dev/null || echo gone; }
serves() { inside pinfold get node >/dev/null 2>&1; }
owns() { [ -n "$(pgrep -x -f 'sleep 4711')" ]; }

mount -t proc proc /proc
mount -t proc proc "$root/proc"
mount --bind /sys "$root/sys"
mount --bind /dev "$root/dev"
cp "$first" "$root/tmp/first.deb"
cp "$next" "$root/tmp/next.deb"
inside useradd alice
inside useradd bob
inside usermod --comment '' bob # the first call leaves backups of the files
files >/tmp/before.$$
see all "$(cat /sys/devices/system/cpu/online)"

inside dpkg --install /tmp/first.deb
see installed "$(inside pinfold version | head -1)"
see check "$(inside pinfold config check)"
see group "$(inside getent group pinfold | cut -d: -f1)"
see manual "$(ls "$root/usr/share/man/man1" | grep -c '^pinfold')"

printf 'groups: affinity\nlisten: none\n' >>"$root/etc/pinfold/config.yaml"
inside pinfold serve >/tmp/serve.$$ 2>&1 &
until_true serves
inside pinfold run --cpus 1 -- sleep 4711 &
until_true owns
see own "$(workload)"
see socket "$(inside stat --format=%U:%G:%a /run/pinfold/pinfold.sock)"
inside usermod --append --groups pinfold alice
see member "$(inside su alice -c 'pinfold get pods >/dev/null && echo may')"
see stranger "$(inside su bob -c 'pinfold get pods' 2>&1 | tail -1)"

inside dpkg --install /tmp/next.deb
see upgraded "$(inside pinfold version | head -1)"
see kept "$(tail -1 "$root/etc/pinfold/config.yaml")"
see own_after_upgrade "$(workload)"
inside pinfold get containers >/dev/null && see daemon_after_upgrade serves

inside dpkg --remove pinfold
until_true sh -c '! pgrep -f "pinfold serv[e]" >/dev/null'
see own_after_remove "$(workload)"
see settings_after_remove "$(test -e "$root/etc/pinfold/config.yaml" && echo kept)"
inside dpkg --purge pinfold
see own_after_purge "$(workload)"
see group_after_purge "$(inside getent group pinfold || echo none)"
files >/tmp/after.$$
see left "$(diff /tmp/before.$$ /tmp/after.$$ | tr '\n' ' ')"
rm -f /tmp/before.$$ /tmp/after.$$ /tmp/serve.$$
