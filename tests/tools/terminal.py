"""The program at a terminal of its own, which a test reads and types at."""
import os
import pty
import re
import select
import signal
import time

from command_line import PROGRAM


class Terminal:
    """The program with a terminal for its three streams."""

    def __init__(self, *words):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execve(PROGRAM, [PROGRAM, *map(str, words)], os.environ | {"TERM": "xterm", "LC_ALL": "C.UTF-8"})
        self.seen = ""

    def send(self, text):
        os.write(self.master, text.encode())

    def read_some(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other side is closed
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)

    def look_for(self, pattern, seconds):
        """Reads until `pattern` is seen, and forgets what was up to it; None where it is not seen in time."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen)):
            left = deadline - time.monotonic()
            if (left <= 0 or not self.read_some(left)) and not re.search(pattern, self.seen):
                return None
        self.seen = self.seen[found.end():]
        return found

    def expect(self, pattern, seconds=60):
        found = self.look_for(pattern, seconds)
        if not found:
            raise AssertionError(f"no {pattern!r} in {self.seen!r}")
        return found

    def press_until(self, keys, pattern):
        """For keys that count only once the program has gone on to something that nobody can see from here."""
        for _ in range(120):
            self.send(keys)
            if found := self.look_for(pattern, 0.5):
                return found
        raise AssertionError(f"no {pattern!r} in {self.seen!r}")

    def end(self):
        """Exit status, or minus the signal; a program that does not end is killed, and that is a failure."""
        while self.read_some(60):
            pass
        process = os.pidfd_open(self.pid)
        has_ended = bool(select.select([process], [], [], 60)[0])
        os.close(process)
        if not has_ended:
            self.kill()
            raise AssertionError(f"does not end; last seen: {self.seen!r}")
        _, status = os.waitpid(self.pid, 0)
        self.pid = None
        os.close(self.master)
        return os.waitstatus_to_exitcode(status)

    def kill(self):
        """Leaves nothing behind, whatever became of the test."""
        if self.pid is None:
            return
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = None
        os.close(self.master)
