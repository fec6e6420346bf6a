"""The runtime's side of CRI, as containerd has it: gRPC on a unix socket."""
