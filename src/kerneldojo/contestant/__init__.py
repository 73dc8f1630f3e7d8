"""The untrusted side: where candidate code lives, and the narrow door through which the judge speaks to it.

A contestant is one fresh, sandboxed process for one candidate. The judge sends it JSON commands over a Unix socket
and shares memory with it for tensors; it answers with JSON claims and with bytes. Nothing else comes out.

- `wire`: length-capped JSON frames and descriptors over a socket.
- `arena`: memory that both sides see, and tensors in it described by checked offsets.
- `tree`: arguments and results (lists, dictionaries, scalars, tensors) as JSON.
- `sandbox`: what a contestant may not do.
- `births`, `warmth`, `forkserver`: a process that has imported everything once, so that a contestant costs a fork.
- `runner`: what runs inside: loads sources, constructs modules, calls them, reports.
"""
