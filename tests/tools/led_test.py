"""`halfbyte launch -- serve` and `chat`: one rank hears what is asked and leads the others."""
import http.client
import json
import os
import signal
import subprocess
import unittest

from command_line import LONGEST, MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest, messages_of
from launch_test import children, is_there

LAYOUTS = [("-n", 2), ("-n", 2, "--parallel", "pipeline=2"), ("-n", 4, "--parallel", "tensor=2,pipeline=2")]
FLOAT32 = ["--dtype", "float32", "--chat-template", "zephyr"]


class Server:
    """`halfbyte serve`, whose first line says where it is."""

    def __init__(self, test, *words):
        self.process = subprocess.Popen([PROGRAM, *map(str, words), "--port", "0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        for clean_up in (self.process.stdout.close, self.process.stderr.close, self.process.wait, self.process.kill):
            test.addCleanup(clean_up)
        self.test = test
        line = self.process.stdout.readline()
        test.assertTrue(line, "" if line else messages_of(self.process))
        self.said = json.loads(line)

    def open(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.said["port"], timeout=LONGEST)
        self.test.addCleanup(connection.close)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse()

    def answer(self, path, body):
        return json.loads(self.open(path, body).read())["choices"][0]

    def begin_long_answer(self):
        """A response of which a piece has come, and which is as long as the context."""
        response = self.open("/v1/completions", {"prompt": "Once", "max_tokens": 4000, "temperature": 0, "ignore_eos": True, "stream": True})
        assert response.readline().startswith(b"data: ")
        return response


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Led(CommandLineTest):
    def test_a_conversation_from_a_pipe(self):
        words = ["chat", TINY_LLAMA, *FLOAT32, "--temperature", 0, "--max-gen-len", 10, "-q"]
        lines = "The ship was late.\nWhy?\n/reset\nOnce upon a time\nthere was\n"
        alone = self.succeeds(*words, input=lines)
        self.assertEqual(alone.count("\n"), 4)
        for layout in LAYOUTS:
            self.assertEqual(self.succeeds("launch", *layout, "--", *words, input=lines), alone, layout)
        self.assertEqual(self.succeeds("launch", "--", *words, "--speculate", "lookup", input=lines), alone)
        self.assertEqual(self.succeeds("launch", "--", *words, input=""), "")

    def test_a_server_answers_as_one_process_and_drains(self):
        chat = {"messages": [{"role": "user", "content": "The ship was late."}], "max_tokens": 12, "temperature": 0}
        text = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
        asked = [("/v1/chat/completions", chat), ("/v1/completions", text)]
        alone = Server(self, "serve", TINY_LLAMA, *FLOAT32, "-q")
        wanted = [alone.answer(*each) for each in asked]
        alone.process.kill()
        for layout in LAYOUTS:
            server = Server(self, "launch", *layout, "--", "serve", TINY_LLAMA, *FLOAT32, "-q")
            ranks = children(server.process)
            self.assertEqual([server.answer(*each) for each in asked], wanted, layout)
            response = server.begin_long_answer()
            server.process.terminate()
            self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
            self.assertEqual((messages_of(server.process), server.process.returncode), ("", 0), layout)
            self.assertFalse(any(map(is_there, ranks)))

    def test_a_signal_to_all_processes_at_once_drains_as_one_does(self):
        for is_launcher_first in (True, False):
            server = Server(self, "launch", "--", "serve", TINY_LLAMA, *FLOAT32, "-q")
            ranks = children(server.process)
            response = server.begin_long_answer()
            for process in [server.process.pid, *ranks] if is_launcher_first else [*ranks, server.process.pid]:
                os.kill(process, signal.SIGTERM)
            self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
            self.assertEqual((messages_of(server.process), server.process.returncode), ("", 0))

    def test_a_follower_that_is_killed_ends_a_server(self):
        for is_answering in (True, False):
            server = Server(self, "launch", "--", "serve", TINY_LLAMA, *FLOAT32, "-q")
            ranks = children(server.process)
            response = server.begin_long_answer() if is_answering else None
            os.kill(ranks[1], signal.SIGKILL)
            if is_answering:
                self.assertIn(b"rank 1 of 2", response.read())  # it is told, and not left waiting
            messages = messages_of(server.process)
            self.assertEqual((server.process.returncode, messages.count("\n")), (137, 1), messages)
            self.assertRegex(messages, r"^halfbyte: rank 1 (of 2 \(process \d+\) was killed|was ended by signal 9)\n$")
            self.assertFalse(any(map(is_there, ranks)))

    def test_a_follower_that_hangs_is_found_out_while_nothing_is_asked(self):
        server = Server(self, "launch", "--timeout", 1, "--", "serve", TINY_LLAMA, *FLOAT32, "-q")
        ranks = children(server.process)
        os.kill(ranks[1], signal.SIGSTOP)
        messages = messages_of(server.process)
        self.assertEqual(server.process.returncode, 1, messages)
        self.assertRegex(messages, r"^halfbyte: rank 1 of 2 \(process \d+\) has not come on for 1 s\n$")
        self.assertFalse(any(map(is_there, ranks)))

    def test_what_is_not_for_ranks_is_one_line(self):
        for words, said in ((["serve", TINY_LLAMA, TINY_LLAMA, "--name", "a", "--name", "b"], "a second model is not for ranks"),
                            (["serve", TINY_LLAMA, "--adapter", self.scratch], "--adapter is not for ranks"),
                            (["chat", TINY_LLAMA, "--adapter", self.scratch], "--adapter is not for ranks"),
                            (["chat", TINY_LLAMA, "--prompt-cache", self.scratch / "cache"], "--prompt-cache is not for ranks"),
                            (["chat", TINY_LLAMA, "--draft", TINY_LLAMA], "--draft is not for ranks")):
            self.fails(2, said, "launch", "--", *words)


if __name__ == "__main__":
    unittest.main()
