"""The runtime's side of NRI, as containerd has it, for plugins on real sockets.

`runtime` registers and asks plugins over a `peer` each; `hooks` says when, `messages` with which fields.
"""
