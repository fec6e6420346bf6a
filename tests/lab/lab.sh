# Sourced by the other scripts: where the lab keeps its files, and a private apt that leaves the system alone.
#   LAB  the lab's directory; it is kept between runs
# shellcheck shell=bash
set -euo pipefail
LAB=$(realpath -m "${LAB:-$HOME/.cache/pinfold-lab}")
export LAB
lab_src=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
host_suite=$(. /etc/os-release && echo "${VERSION_CODENAME:?the lab needs a Debian host}")
mkdir -p "$LAB"

die() { echo "${0##*/}: $*" >&2; exit 1; }

# lock: wait until no other script of the lab fetches anything; held until `unlock`, or until this script ends.
lock() { exec 9>"$LAB/lock" && flock 9; }
unlock() { exec 9>&-; }

# sources_for SUITE: write this machine's own Debian sources with the suite's name replaced, deb822 files and .list files.
# Only entries for exactly the host's suite count: its -updates and -security have no equivalent in sid.
sources_for() {
  local file dir=$LAB/apt/$1/sources
  rm -rf "$dir" && mkdir -p "$dir"
  for file in /etc/apt/sources.list.d/*.sources; do
    [ -e "$file" ] || continue
    awk -v RS= -v ORS='\n\n' -v from="$host_suite" -v to="$1" '
      /(^|\n)Enabled: *no/ { next }
      match($0, /(^|\n)Suites:[^\n]*/) {
        suites = substr($0, RSTART, RLENGTH) " "
        if (suites !~ ("[: ]" from " ")) next
        print substr($0, 1, RSTART - 1) "\nSuites: " to substr($0, RSTART + RLENGTH)
      }' "$file" >"$dir/${file##*/}"
  done
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -e "$file" ] || continue
    sed -nE "s#^(deb .*) $host_suite (.*)#\\1 $1 \\2#p" "$file" >"$dir/${file##*/}"
  done
  find "$dir" -type f -empty -delete
  [ -n "$(ls "$dir")" ] || die "no apt source for $host_suite found; the sources of $1 are made from it"
}

# refresh SUITE: set up the private apt of a suite, with today's package lists.
refresh() {
  local apt=$LAB/apt/$1
  mkdir -p "$apt"/{state,lists/partial,cache/archives/partial}
  : >"$apt/status"
  sources_for "$1"
  cat >"$apt/apt.conf" <<CONF
Dir::State "$apt/state";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$apt/sources";
Dir::Etc::preferencesparts "/dev/null";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Sandbox::User "root";
CONF
  APT_CONFIG=$apt/apt.conf apt-get -qq update
}

# newest SUITE PACKAGE: print the first package that PACKAGE depends on: linux-image-cloud-amd64 only names the newest kernel.
newest() {
  refresh "$1"
  APT_CONFIG=$LAB/apt/$1/apt.conf apt-cache depends "$2" | awk '$1 == "Depends:" { print $2; exit }'
}

# fetch_debs SUITE DIR PACKAGE...: download packages from SUITE and unpack them into DIR; nothing is installed.
# DIR appears only when it is complete, so that an interrupted download is not taken for a finished one.
fetch_debs() {
  local dir=$2
  refresh "$1"  # old lists name packages that the mirror has removed since
  rm -rf "$dir.debs" && mkdir -p "$dir.debs"
  (cd "$dir.debs" && APT_CONFIG=$LAB/apt/$1/apt.conf apt-get -qq download "${@:3}")
  unpack "$dir"
}

# fetch_source SUITE DIR PACKAGE: download the upstream source of a package from SUITE and unpack it into DIR.
fetch_source() {
  local apt=$LAB/apt/$1 dir=$2
  refresh "$1"
  sed -i -E 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' "$apt"/sources/*
  APT_CONFIG=$apt/apt.conf apt-get -qq update
  rm -rf "$dir.debs" "$dir.new" && mkdir -p "$dir.debs" "$dir.new"
  (cd "$dir.debs" && APT_CONFIG=$apt/apt.conf apt-get -qq source --download-only "$3")
  tar -xf "$dir.debs"/*.orig.tar.* -C "$dir.new" --strip-components=1
  rm -rf "$dir.debs" "$dir" && mv "$dir.new" "$dir"
}

# fetch_missing SUITE DIR PACKAGE...: the same with all packages that they depend on and that this machine lacks.
# DIR can be a layer over the root file system, where /bin, /sbin and /lib are links into /usr.
fetch_missing() {
  local dir
  refresh "$1"
  rm -rf "$2.debs" && mkdir -p "$2.debs/partial"
  APT_CONFIG=$LAB/apt/$1/apt.conf apt-get -qq -y --no-install-recommends --download-only \
    -o Dir::State::status=/var/lib/dpkg/status -o "Dir::Cache::archives=$2.debs" install "${@:3}"
  unpack "$2"
  for dir in bin sbin lib lib64; do
    [ ! -d "$2/$dir" ] || { mkdir -p "$2/usr/$dir" && cp -a "$2/$dir/." "$2/usr/$dir" && rm -r "${2:?}/$dir"; }
  done
}

# unpack DIR: unpack the packages in DIR.debs into DIR.
unpack() {
  local deb dir=$1
  rm -rf "$dir.new" && mkdir -p "$dir.new"
  for deb in "$dir.debs"/*.deb; do dpkg -x "$deb" "$dir.new"; echo "  ${deb##*/}"; done
  rm -rf "$dir.debs" "$dir" && mv "$dir.new" "$dir"
}

# busybox: print the path of a static busybox, unpacked from its Debian package.
busybox() {
  [ -d "$LAB/busybox" ] || fetch_debs "$host_suite" "$LAB/busybox" busybox-static >&2
  find "$LAB/busybox" -name busybox -type f -perm -u+x -print -quit
}
