"""Whose rights open, rename and remove files: those of this process, or of a user for whom root acts."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pwd

_ASK = 0xFFFFFFFF
"""An id that setfsuid(2) never sets: the call then gives the present one."""


class Rights:
    """The rights of this process or, when root acts for a user, of that user: for files alone, of one thread alone."""

    def __init__(self, user: pwd.struct_passwd | None = None) -> None:
        """`user` needs root. The process takes over the user's groups, because root's own would open more files."""
        self.user = user
        self._libc: Any = None
        if user is not None:
            import ctypes

            self._libc = ctypes.CDLL(None, use_errno=True)
            for name in ("setfsuid", "setfsgid"):
                function = getattr(self._libc, name)
                function.argtypes, function.restype = [ctypes.c_uint], ctypes.c_uint
            os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Do what touches the file system inside this block. Import nothing in it: the user may not read our code.

        setfsuid(2) changes the calling thread only, and takes away root's capabilities to override permissions.
        """
        if self.user is None:
            yield
            return
        try:
            self._change(self.user.pw_uid, self.user.pw_gid)
            yield
        finally:
            self._change(os.geteuid(), os.getegid())

    def _change(self, uid: int, gid: int) -> None:
        """Raise PermissionError when the kernel refuses: both calls give the id before, and no error."""
        self._libc.setfsgid(gid)
        self._libc.setfsuid(uid)
        if (self._libc.setfsuid(_ASK), self._libc.setfsgid(_ASK)) != (uid, gid):
            raise PermissionError(errno.EPERM, f"root cannot take the rights of user {uid} here")
