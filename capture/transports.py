"""How another host is reached: by ssh, or by kubectl in a container."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from . import tools
from .errors import RecordingError, UsageError

POD = "pod:"
"""What names of containers begin with."""
_POD = re.compile(r"pod:(?:([a-z0-9][a-z0-9-]*)/)?([a-z0-9][a-z0-9.-]*)(?::([a-z0-9][a-z0-9-]*))?")
"""Namespace, pod and container, whose names are DNS names (kubernetes.io, Object Names and IDs)."""
_SSH = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15")
"""ssh without a terminal, without questions, and with time limits."""


@dataclass(frozen=True)
class Transport:
    """A program that runs shell commands on another host."""

    program: str
    install: str
    build: Callable[[str], list[str]]
    """Gives its arguments for a command."""

    def list_words(self, command: str) -> list[str]:
        """Give the command line that runs a shell command there. Raises RecordingError."""
        path = tools.find(self.program)
        if path is None:
            raise RecordingError(f"--also needs {self.install}")
        return [path, *self.build(command)]


def choose(host: str) -> Transport:
    """Choose the transport by the name of a host or container. Raises UsageError."""
    if not host.startswith(POD):
        if host.startswith("-") or not host:
            raise UsageError(f"--also {host!r}: write a host as for ssh, or pod:[NAMESPACE/]POD[:CONTAINER]")
        install = "the OpenSSH client: apt install openssh-client"
        return Transport("ssh", install, lambda command: [*_SSH, "--", host, command])
    match = _POD.fullmatch(host)
    if match is None:
        raise UsageError(f"--also {host}: write pod:[NAMESPACE/]POD[:CONTAINER], as pod:shop/cart-7f9c:grpcdiag")
    namespace, pod, container = match.groups()
    words = ["exec", "-i", *(["-n", namespace] if namespace else []), pod]
    words += ["-c", container] if container else []
    return Transport(
        "kubectl", "kubectl, and the right to use pods/exec", lambda command: [*words, "--", "sh", "-c", command]
    )
