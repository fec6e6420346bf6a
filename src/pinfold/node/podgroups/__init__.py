"""The cgroups of Kubernetes pods: finds those that a kubelet and its runtime made, and sets their CPUs. Makes none."""
