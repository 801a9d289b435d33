"""A one-shot timer as a file descriptor, precise to tens of microseconds.

gevent and epoll_wait round a wait up to whole milliseconds; a timerfd inside the pump's own epoll set does not.
"""

import ctypes
import os
import time
from typing import Final

_TFD_NONBLOCK: Final = os.O_NONBLOCK
_TFD_CLOEXEC: Final = os.O_CLOEXEC
_TFD_TIMER_ABSTIME: Final = 1
_NS_PER_S: Final = 1_000_000_000


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_int64))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Timer:
    """A timerfd on CLOCK_MONOTONIC.

    `fd` turns readable at the armed moment and stays so until the timer is armed again.
    """

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = libc.timerfd_create(time.CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self.fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd_create: {os.strerror(number)}")
        self._spec = _Itimerspec()
        self._value = self._spec.value
        # The argument list is built once: arming is done for every wait of the measured loop.
        self._arguments = (self.fd, _TFD_TIMER_ABSTIME, ctypes.byref(self._spec), None)
        self._settime = libc.timerfd_settime
        self._armed = False

    def arm(self, at_s: float) -> None:
        """Fire at `at_s` on the monotonic clock; a moment in the past fires at once."""
        self._set(max(1, int(at_s * _NS_PER_S)))
        self._armed = True

    def disarm(self) -> None:
        """Do not fire, and be readable no more."""
        if self._armed:
            self._set(0)
            self._armed = False

    def _set(self, at_ns: int) -> None:
        self._value.seconds, self._value.nanoseconds = divmod(at_ns, _NS_PER_S)
        if self._settime(*self._arguments):
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd_settime: {os.strerror(number)}")

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
