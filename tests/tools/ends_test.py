"""Ends that come from outside: signals at any time, limits, what the last steps of a commit refuse. One line, a status, and what is on disk."""
import collections
import errno
import os
import resource
import shutil
import signal
import subprocess
import unittest

from command_line import LONGEST, PROGRAM, CommandLineTest, messages_of, run, wait_until, write_tiny_model

PRELOAD = os.environ["HALFBYTE_CRASH_AT_LIBRARY"]


def contents(path):
    """Of a folder or a file; None when nothing is there."""
    if path.is_dir():
        return {file.name: file.read_bytes() for file in path.iterdir()}
    return path.read_bytes() if path.exists() else None


class Ends(CommandLineTest):
    """Everything that writes a checkpoint, of a tiny model."""

    def setUp(self):
        super().setUp()
        write_tiny_model(self.scratch / "source")
        self.succeeds("quantize", self.scratch / "source", self.scratch / "int4", "-q")
        self.commands = {
            "quantize": ["quantize", self.scratch / "source", "--threads", "1"],
            "quantize --resume": ["quantize", self.scratch / "source", "--threads", "1", "--resume"],
            "quantize --overwrite": ["quantize", self.scratch / "source", "--threads", "1", "--overwrite"],
            "repack": ["quantize", self.scratch / "int4", "--threads", "1"],
            "dequantize": ["dequantize", self.scratch / "int4", "--threads", "1"],
            "export gguf": ["export", self.scratch / "int4", "--to", "gguf"],
            "export gptq": ["export", self.scratch / "int4", "--to", "gptq"],
        }
        self.wanted = {}
        for name in self.commands:
            self.assertEqual(self.preloaded(name, "wanted").returncode, 0)
            self.wanted[name] = contents(self.scratch / name / "wanted")

    def words(self, name, destination="x"):
        words = self.commands[name]
        return [*map(str, words[:2]), str(self.scratch / name / destination), *words[2:], "-q"]

    def start(self, name, destination="x", **environment):
        folder = self.scratch / name
        folder.mkdir(exist_ok=True)
        if "--overwrite" in name and destination == "x":
            shutil.copytree(self.scratch / "int4", folder / "x")
        return subprocess.Popen([PROGRAM, *self.words(name, destination)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                                env={**os.environ, "LD_PRELOAD": PRELOAD, "OMP_NUM_THREADS": "1", **environment})

    def preloaded(self, name, destination="x", **environment):
        process = self.start(name, destination, **environment)
        stdout, stderr = process.communicate(timeout=LONGEST)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def clear(self, name):
        for path in (self.scratch / name).iterdir():
            if path.name != "wanted":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def after_the_name(self, name):
        """(number, call, path) of each call that follows the one which gives the result its name."""
        log = self.scratch / "calls"
        log.unlink(missing_ok=True)
        self.assertEqual(self.preloaded(name, HALFBYTE_FAULT_COUNT=str(log)).returncode, 0)
        self.clear(name)
        calls = [line.split("\t") for line in log.read_text(encoding="utf-8").split("\n")[1:]]
        named = max(number for number, call in enumerate(calls) if "renameat2" in call[0])
        return [(number, call[0], call[-1]) for number, call in enumerate(calls, 1) if number > named + 1]


class Commit(Ends):
    def test_a_result_whose_name_cannot_be_synced_is_said_to_be_there(self):
        for name in self.commands:
            syncs = [number for number, call, path in self.after_the_name(name) if call in ("fsync", "open")][:2]
            for number in syncs:
                for error in (errno.EIO, errno.ENOSPC):
                    done = self.preloaded(name, HALFBYTE_FAULT_AT=str(number), HALFBYTE_FAULT=str(error))
                    self.assertEqual((done.returncode, done.stderr.count("\n")), (4 if error == errno.ENOSPC else 1, 1), (name, number, done.stderr))
                    for part in ["/x is complete, but ", os.strerror(error), "a power failure may undo"]:
                        self.assertIn(part, done.stderr)
                    self.assertEqual("the same command tries again" in done.stderr, "--resume" in name)
                    self.assertNotIn(".partial is kept", done.stderr)
                    self.assertEqual(contents(self.scratch / name / "x"), self.wanted[name])
                    if "--overwrite" in name:
                        self.assertIn("what it replaced is kept in ", done.stderr)
                        self.assertEqual(contents(self.scratch / name / "x.partial" / "checkpoint"), contents(self.scratch / "int4"))
                    if "--resume" in name:
                        self.assertIn("complete already", self.succeeds(*self.words(name)))
                        self.assertFalse((self.scratch / name / "x.partial").exists())
                    self.clear(name)

    def test_what_cannot_be_deleted_is_named_though_all_is_quiet(self):
        for name in self.commands:
            deletions = [number for number, call, path in self.after_the_name(name) if call in ("unlink", "unlinkat", "rmdir", "remove")]
            self.assertTrue(deletions, name)
            done = self.preloaded(name, HALFBYTE_FAULT_AT=str(deletions[-1]), HALFBYTE_FAULT=str(errno.EACCES))
            self.assertEqual((done.returncode, done.stderr.count("\n")), (0, 1), (name, done.stderr))
            for part in ["halfbyte: warning: ", "/x.partial", "deleting it failed: Permission denied", "delete it yourself"]:
                self.assertIn(part, done.stderr)
            self.assertEqual(contents(self.scratch / name / "x"), self.wanted[name])
            self.assertTrue((self.scratch / name / "x.partial").exists())
            self.clear(name)


class Signals(Ends):
    """A run is stopped at a call, gets a signal, and goes on."""

    def moments(self, name):
        """Numbers of calls that change files, from the first to the last: as many as a test has time for."""
        log = self.scratch / "changes"
        log.unlink(missing_ok=True)
        self.assertEqual(self.preloaded(name, HALFBYTE_CRASH_COUNT=str(log)).returncode, 0)
        self.clear(name)
        count = len(log.read_text(encoding="ascii").split())
        return [1 + (count - 1) * part // 4 for part in range(5)]

    def interrupted(self, name, number, sent):
        process = self.start(name, HALFBYTE_CRASH_AT=str(number), HALFBYTE_CRASH_WHEN="stop")
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status), (name, number))
        process.send_signal(sent)
        process.send_signal(signal.SIGCONT)
        messages = messages_of(process)
        return process.returncode, messages

    def check_left(self, name):
        """What stands under the name is whole; what stands beside it is ours, and a second run comes to the end."""
        shown = contents(self.scratch / name / "x")
        self.assertIn(shown, [None, self.wanted[name], contents(self.scratch / "int4") if "--overwrite" in name else None])
        left = sorted(path.name for path in (self.scratch / name).iterdir() if path.name != "wanted")
        self.assertLessEqual(set(left), {"x", "x.partial"})
        return shown, "x.partial" in left

    def test_what_asks_to_stop_stops(self):
        ends = collections.Counter()
        for name in self.commands:
            for number in self.moments(name):
                for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    status, messages = self.interrupted(name, number, sent)
                    shown, has_partial = self.check_left(name)
                    ends[status] += 1
                    if status == 0:  # it was done but for the last steps
                        self.assertEqual((messages, shown, has_partial), ("", self.wanted[name], False))
                    else:
                        self.assertEqual((status, messages.count("\n")), (130, 1), (name, number, sent, messages))
                        self.assertIn("stopped", messages)
                        is_kept = "x.partial is kept, the same command with --resume goes on" in messages
                        self.assertEqual(has_partial, is_kept, (name, number, messages))
                    self.clear(name)
        self.assertEqual(set(ends), {0, 130})

    def test_what_ends_at_once_leaves_what_a_kill_leaves(self):
        for name in self.commands:
            for number in self.moments(name):
                status, messages = self.interrupted(name, number, signal.SIGQUIT)
                self.assertEqual((status, messages), (-signal.SIGQUIT, ""))
                self.check_left(name)
                if "--resume" in name:
                    self.succeeds(*self.words(name))
                    self.assertEqual(contents(self.scratch / name / "x"), self.wanted[name])
                self.clear(name)

    def test_a_reader_that_goes_away_does_not_end_the_work(self):
        for name in self.commands:
            process = self.start(name)
            process.stdout.close()
            messages = process.stderr.read()
            process.stderr.close()
            self.assertEqual(process.wait(LONGEST), 1, messages)
            self.assertEqual(messages, "halfbyte: cannot write to standard output: Broken pipe\n")
            self.assertEqual(self.check_left(name), (self.wanted[name], False))
            self.clear(name)

    def test_what_whoever_starts_it_ignores_stays_ignored(self):
        for sent in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            before = signal.signal(sent, signal.SIG_IGN)
            try:
                self.assertEqual(self.interrupted("quantize", self.moments("quantize")[1], sent), (0, ""))
            finally:
                signal.signal(sent, before)
            self.clear("quantize")

    def test_a_signal_of_no_meaning_does_not_take_control_c_away(self):
        status, messages = self.interrupted("quantize", self.moments("quantize")[1], signal.SIGUSR2)
        self.assertEqual((status, messages), (-signal.SIGUSR2, ""))


class Limits(Ends):
    def limited(self, kind, limit, *words):
        return run(*words, preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)))

    def test_few_open_files_leave_nothing(self):
        for limit in range(4, 12):
            done = self.limited(resource.RLIMIT_NOFILE, limit, "quantize", self.scratch / "source", self.scratch / "few" / "x", "--threads", "1", "-q")
            (self.scratch / "few").mkdir(exist_ok=True)
            if limit > 4 and done.returncode != 127:  # the dynamic loader's own
                self.assertIn(done.returncode, (0, 1, 4), done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1 if done.returncode else 0, done.stderr)
            self.assertFalse((self.scratch / "few" / "x.partial").exists(), (limit, done.stderr))
            shutil.rmtree(self.scratch / "few")
            (self.scratch / "few").mkdir()

    def test_a_limit_on_the_size_of_a_file(self):
        for name in self.commands:
            done = self.limited(resource.RLIMIT_FSIZE, 10_000, *self.words(name, "y"))
            self.assertEqual((done.returncode, done.stderr.count("\n")), (4, 1), (name, done.stderr))
            self.assertIn("File too large; raise the limit", done.stderr)
            self.assertIsNone(contents(self.scratch / name / "y"))
            self.assertEqual((self.scratch / name / "y.partial").exists(), "y.partial is kept" in done.stderr)

    def test_places_where_nothing_can_be_made(self):
        for place, reason in (("/proc/x", "No such file or directory"), ("/dev/null/x", "there is no such directory"), (f"/{'x' * 300}", "File name too long")):
            self.fails(1, reason, "quantize", self.scratch / "source", place)
            self.fails(1, reason, "export", self.scratch / "int4", place, "--to", "gguf")


if __name__ == "__main__":
    unittest.main()
