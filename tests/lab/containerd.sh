#!/usr/bin/env bash
# containerd.sh start|stop|restart SUITE: run the private containerd that provision.sh unpacked.
#   RUN  the directory of this containerd: sockets, state, images. Not on overlayfs, which cannot be stacked: in a guest
#        below /run.
#   CGROUP_DRIVER  cgroupfs | systemd; default: cgroupfs
# CRI: $RUN/containerd.sock   NRI: $RUN/nri/nri.sock   log: $RUN/log   config: $RUN/config.toml
source "$(dirname "$(realpath "$0")")/lab.sh"
usage="usage: RUN=DIRECTORY containerd.sh start|stop|restart SUITE"
verb=${1:?$usage} suite=${2:?$usage} run=${RUN:?$usage}
bin=$LAB/$suite/usr/bin
runc=$LAB/runc/usr/sbin/runc
socket=$run/containerd.sock
[ "${CGROUP_DRIVER:-cgroupfs}" = systemd ] && by_systemd=true || by_systemd=false

ctr() { "$bin/ctr" --address "$socket" --namespace k8s.io "$@"; }

# Every configuration has:
#   root, state, sockets and opt path of its own; no snapshotters that this machine lacks
#   a cgroup driver, runc by its path, no AppArmor, no hugetlb controller
#   an imported sandbox image; empty CNI directories (pods use the host's network)
#   NRI on, with a socket of its own and empty plugin directories
common_config() {
  local off
  off=$(printf '"io.containerd.%s", ' snapshotter.v1.{btrfs,zfs,devmapper,aufs,blockfile,erofs} \
    internal.v1.tracing tracing.processor.v1.otlp)
  cat <<TOML
version = $1
root = "$run/root"
state = "$run/state"
imports = []
disabled_plugins = [$off]
[grpc]
  address = "$socket"
[ttrpc]
  address = "$socket.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "$run/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  disable_connections = false
  socket_path = "$run/nri/nri.sock"
  plugin_path = "$run/nri-plugins"
  plugin_config_path = "$run/nri-conf.d"
  plugin_registration_timeout = "5s"
  plugin_request_timeout = "2s"
TOML
}

config_v2() {  # containerd 1.6 and 1.7
  common_config 2
  local cri='plugins."io.containerd.grpc.v1.cri"'
  cat <<TOML
[$cri]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
[$cri.cni]
  bin_dir = "$run/cni/bin"
  conf_dir = "$run/cni/net.d"
[$cri.containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[$cri.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[$cri.containerd.runtimes.runc.options]
  BinaryName = "$runc"
  SystemdCgroup = $by_systemd
TOML
}

config_v3() {  # containerd 2.x: the CRI plugin is split in images, runtime and grpc
  common_config 3
  local cri='plugins."io.containerd.cri.v1.runtime"'
  cat <<TOML
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/pause:1"
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
[$cri]
  disable_apparmor = true
  disable_hugetlb_controller = true
  restrict_oom_score_adj = true
  enable_cdi = false
[$cri.cni]
  bin_dirs = ["$run/cni/bin"]
  conf_dir = "$run/cni/net.d"
[$cri.containerd]
  default_runtime_name = "runc"
[$cri.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[$cri.containerd.runtimes.runc.options]
  BinaryName = "$runc"
  SystemdCgroup = $by_systemd
TOML
}

# running: print the pid of this containerd if it runs. The executable is compared: the pid may be another process's by now.
running() {
  local pid
  pid=$(cat "$run/pid" 2>/dev/null) || return 1
  [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$(realpath "$bin/containerd")" ] && echo "$pid"
}

start() {
  [ -x "$bin/containerd" ] || die "no containerd in $bin: run provision.sh $suite first"
  ! running >/dev/null || die "already running, pid $(running)"
  [ ${#socket} -le 100 ] || die "socket path too long (107 bytes at most with its .ttrpc): set a shorter RUN"
  mkdir -p "$run"/{nri-plugins,nri-conf.d,cni/bin,cni/net.d}
  case $("$bin/containerd" --version) in
    *" 1."*) config_v2 ;;
    *) config_v3 ;;
  esac >"$run/config.toml"
  PATH=$bin:${runc%/*}:$PATH setsid "$bin/containerd" --config "$run/config.toml" >"$run/log" 2>&1 </dev/null &
  echo $! >"$run/pid"
  for _ in $(seq 300); do
    ctr version >/dev/null 2>&1 && break
    kill -0 $! 2>/dev/null || die "containerd ended: $(tail -n 3 "$run/log")"
    sleep 0.1
  done
  ctr version >/dev/null || die "no answer from containerd in 30 s, see $run/log"
  for image in "$LAB"/images/*.tar; do ctr images import --all-platforms "$image" >/dev/null; done
  echo "containerd $suite pid $(running), CRI $socket, NRI $run/nri/nri.sock"
}

# end PID: send SIGTERM, wait up to 10 s, then send SIGKILL.
end() {
  kill "$1"
  for _ in $(seq 100); do running >/dev/null || return 0; sleep 0.1; done
  kill -9 "$1"
}

# shims: print the pids of this containerd's shims, which outlive it. Their arguments contain its address.
shims() {
  local dir
  for dir in /proc/[0-9]*; do
    case $(tr '\0' ' ' <"$dir/cmdline" 2>/dev/null) in
      *containerd-shim-runc-v2\ *" -address $socket "*) echo "${dir#/proc/}" ;;
    esac
  done
}

# End containerd, its shims and its containers, also those that a crashed containerd left; remove its mounts and state.
stop() {
  local pid bundle
  if pid=$(running); then end "$pid"; fi
  for pid in $(shims); do kill -9 "$pid" || true; done
  for bundle in "$run"/state/io.containerd.runtime.v2.task/k8s.io/*/; do
    [ -d "$bundle" ] || continue
    "$runc" --root /run/containerd/runc/k8s.io delete --force "$(basename "$bundle")"
    { grep -hos '/run/containerd/s/[0-9a-f]*' "$bundle"/{address,bootstrap.json} || true; } | xargs -r rm -f
  done
  awk -v dir="$run/" 'index($2, dir) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r -n 1 umount -l
  rm -rf "$run"/{pid,root,state,opt,nri} "$run"/*.sock*
  echo "containerd $suite stopped"
}

# Replace the containerd process; its containers go on running.
restart() {
  local pid
  pid=$(running) || die "not running"
  end "$pid"
  start
}

case $verb in
  start | stop | restart) "$verb" ;;
  *) die "$usage" ;;
esac
