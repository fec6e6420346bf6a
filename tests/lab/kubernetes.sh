#!/usr/bin/env bash
# kubernetes.sh: build kube-apiserver, kube-controller-manager, kube-scheduler and kubelet from the source package of
# Debian 12 (Kubernetes 1.20) into $LAB/kubernetes/bin, and unpack etcd beside them and network plugins into $LAB/cni,
# unless they are there.
# Go is unpacked too: nothing is installed. Takes 10 to 30 minutes on two CPUs, and 2 GB of disk while it builds.
source "$(dirname "$(realpath "$0")")/lab.sh"
suite=bookworm
home=$LAB/kubernetes
programs=(kubelet kube-apiserver kube-controller-manager kube-scheduler)

exec 8>"$LAB/kubernetes.lock" && flock 8  # not the lab's lock: others need not wait for the compiler
[ -d "$LAB/cni" ] || { lock && fetch_debs "$suite" "$LAB/cni" containernetworking-plugins && unlock; }
if [ -e "$home/complete" ]; then exit 0; fi
mkdir -p "$home/bin"

lock
[ -d "$home/tools" ] || fetch_debs "$suite" "$home/tools" golang-1.19-go golang-1.19-src etcd-server \
  golang-github-modern-go-reflect2-dev
source=$home/go/src/k8s.io/kubernetes
[ -d "$source" ] || { mkdir -p "${source%/*}" && fetch_source "$suite" "$source" kubernetes; }
unlock

# Debian builds it like this too: without modules, in the directory that its import path names.
export GOROOT=$home/tools/usr/lib/go-1.19 GOPATH=$home/go GOCACHE=$home/cache GO111MODULE=off CGO_ENABLED=0 GOFLAGS=
export PATH=$GOROOT/bin:$PATH
cd "$source"
# The reflect2 of that time reads the maps of Go 1.18 and newer wrongly: the API server crashes with the first CRD.
rm -rf vendor/github.com/modern-go/reflect2 && cp -r "$home/tools/usr/share/gocode/src/github.com/modern-go/reflect2" vendor/github.com/modern-go/
vendor=k8s.io/kubernetes/vendor/k8s.io
build() { nice -n 10 go build -tags 'providerless dockerless' "$@"; }

# The schemas of the API's kinds are not in the tarball; without them there is no server-side apply.
schemas=pkg/generated/openapi/zz_generated.openapi.go
if [ ! -e "$schemas" ]; then
  echo "schemas:"
  build -o "$home/openapi-gen" $vendor/kube-openapi/cmd/openapi-gen
  find -L pkg cmd plugin vendor/k8s.io -name '*.go' -exec grep -l '^// *+k8s:openapi-gen=' {} + |
    grep -v -e /code-generator/ -e /sample-apiserver/ | xargs -n 1 dirname | sort -u | sed 's#^#k8s.io/kubernetes/#' >"$home/kinds"
  nice -n 10 "$home/openapi-gen" -i "$(paste -sd, "$home/kinds")" -p k8s.io/kubernetes/pkg/generated/openapi \
    -O zz_generated.openapi -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$home/violations"
fi
version=$vendor/component-base/version
for program in "${programs[@]}"; do
  echo "$program:"
  build -o "$home/bin/" -ldflags "-s -w -X $version.gitVersion=v1.20.2 -X $version.gitMajor=1 -X $version.gitMinor=20" \
    "k8s.io/kubernetes/cmd/$program"
done
cp "$home/tools/usr/bin/etcd" "$home/bin/"
"$home/bin/kubelet" --version
cd "$home" && chmod -R u+w go cache && rm -rf go cache tools openapi-gen kinds violations
touch "$home/complete"
