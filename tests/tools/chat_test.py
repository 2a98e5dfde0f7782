"""halfbyte chat and generate --chat: turns from a pipe and at a terminal, commands, Ctrl-C, a full context."""
import json
import os
import signal
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, copy_of_tiny_llama, run
from terminal import Terminal

GREEDY = ["--chat-template", "zephyr", "--temperature", "0"]
ZEPHYR = ("{% for message in messages %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n{% endfor %}"
          "{% if add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}")


def chat(lines, *words, model=TINY_LLAMA):
    return run("chat", model, *words, input="".join(line + "\n" for line in lines))


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class PipedChat(CommandLineTest):
    def turns(self, lines, *words, **options):
        """One object a turn; stderr is empty with -q."""
        done = chat(lines, *GREEDY, "--json", "-q", *words, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_each_line_is_a_turn_and_each_answer_a_line(self):
        answers = self.turns(["The ship was late.", "", "Why?"], "--max-gen-len", "6", "--dtype", "float32")
        self.assertEqual([answer["role"] for answer in answers], ["assistant"] * 2)
        self.assertEqual([len(answer["tokens"]) for answer in answers], [6, 6])
        self.assertEqual([answer["finish_reason"] for answer in answers], ["length"] * 2)
        done = chat(["The ship was late.", "Why?"], *GREEDY, "-q", "--max-gen-len", "6", "--dtype", "float32")
        self.assertEqual(done.stdout, "".join(answer["text"] + "\n" for answer in answers))
        self.assertEqual(chat([], *GREEDY, "-q").stdout, "")

    def test_a_turn_costs_its_new_tokens_and_answers_as_from_scratch(self):
        questions = ["The ship was late.", "And it came to pass", "Who?", "In the beginning"]
        words = ["--max-gen-len", "8", "--dtype", "float32"]
        answers = self.turns(questions, *words)
        messages = []
        for number, (question, answer) in enumerate(zip(questions, answers)):
            messages.append({"role": "user", "content": question})
            path = self.scratch / "messages.json"
            path.write_text(json.dumps(messages))
            alone = self.json_of("generate", TINY_LLAMA, "--chat", *GREEDY, "--messages", path, "-q", *words)["generations"][0]
            self.assertEqual((alone["tokens"], alone["text"]), (answer["tokens"], answer["text"]))
            messages.append({"role": "assistant", "content": answer["text"]})
            if number > 0:
                before = answers[number - 1]
                self.assertGreaterEqual(answer["cached_tokens"], before["prompt_tokens"] - 1)
        self.assertEqual(answers[0]["cached_tokens"], 0)

    def test_reset_forgets_and_system_is_told(self):
        words = ["--max-gen-len", "6", "--dtype", "float32"]
        first, _, again, told = self.turns(["Hello", "Bye", "/reset", "Hello", "/reset", "/system Be brief.", "Hello"], *words)
        self.assertEqual(again["tokens"], first["tokens"])
        self.assertEqual(again["prompt_tokens"], first["prompt_tokens"])
        self.assertGreater(told["prompt_tokens"], first["prompt_tokens"])
        with_option = self.turns(["Hello"], "--system", "Be brief.", *words)[0]
        self.assertEqual((with_option["tokens"], with_option["prompt_tokens"]), (told["tokens"], told["prompt_tokens"]))

    def test_lines_join_and_commands_are_told_from_texts(self):
        words = ["--max-gen-len", "2", "--dtype", "float32"]
        done = chat(
            ["one\\", "two", "/reset", '"""one', 'two"""', "/reset", '"""', "one", "two", '"""', "/reset", "//x", "/reset", "/x"], *GREEDY, *words, "--json", "-q")
        self.assertIn("no command /x", done.stderr)
        sizes = [json.loads(line)["prompt_tokens"] for line in done.stdout.splitlines()]
        self.assertEqual(len(sizes), 4)
        self.assertEqual(len(set(sizes[:3])), 1)
        done = chat(["/history", "/help", "/quit", "Hello"], *GREEDY, "-q")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn("/reset", done.stderr)
        done = chat(["Hello", "/show"], *GREEDY, "-q", "--max-gen-len", "2", "--system", "Be brief.")
        self.assertRegex(done.stderr, r"^system: Be brief.\nuser: Hello\nassistant: ")

    def test_a_full_context_is_said_and_the_oldest_turns_go(self):
        lines = [f"The ship number {number} was late and it came to pass" for number in range(8)]
        words = ["--max-gen-len", "30"]
        answers = self.turns(lines, *words)
        self.assertGreater(sum(answer["dropped_turns"] for answer in answers), 0)
        self.assertLess(max(answer["prompt_tokens"] for answer in answers), 256)
        done = chat(lines, *GREEDY, *words)
        self.assertRegex(done.stderr, r"context of 256 tokens is full: forgot the oldest \d turn")
        done = chat(["x " * 400], *GREEDY)
        self.assertEqual(done.returncode, 2)
        self.assertIn("the model's context is 256", done.stderr)

    def test_an_answer_that_the_context_ends_says_so(self):
        done = chat(["The ship was late."], *GREEDY, "--max-gen-len", "1000", "--json")
        self.assertEqual(json.loads(done.stdout)["finish_reason"], "context")
        self.assertIn("context of 256 tokens is full", done.stderr)

    def test_a_template_that_nobody_knows_is_refused_before_the_model_loads(self):
        wanted = ["has no chat template", "--chat-template chatml", "llama3", "zephyr", "generate needs no template"]
        self.fails(3, wanted, "chat", TINY_LLAMA, input="Hello\n")
        self.fails(3, wanted, "generate", TINY_LLAMA, "--chat", "--prompt", "Hello")
        self.fails(2, ["--chat-template", "lama2", "llama2"], "chat", TINY_LLAMA, "--chat-template", "lama2")
        strange = copy_of_tiny_llama(self.scratch / "strange")
        (strange / "chat_template.jinja").write_text("{% include 'x' %}")
        self.fails(3, ["line 1: no statement is called", "--chat-template", "zephyr"], "chat", strange, input="")

    def test_the_checkpoint_says_its_template_and_its_stop_tokens(self):
        said = copy_of_tiny_llama(self.scratch / "said")
        (said / "chat_template.jinja").write_text(ZEPHYR)
        words = ["--max-gen-len", "8", "--dtype", "float32"]
        wanted = self.turns(["Hello"], *words)[0]["tokens"]
        done = run("chat", said, "--temperature", "0", "--json", "-q", *words, input="Hello\n")
        self.assertEqual(json.loads(done.stdout)["tokens"], wanted)
        (said / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, wanted[3]]}))
        done = run("chat", said, "--temperature", "0", "--json", "-q", *words, input="Hello\n")
        answer = json.loads(done.stdout)
        self.assertEqual((answer["tokens"], answer["finish_reason"]), (wanted[:wanted.index(wanted[3])], "stop"))


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class GenerateChat(CommandLineTest):
    def prompt_of(self, *words):
        return self.json_of("generate", TINY_LLAMA, "--chat", "--chat-template", "llama2", "--echo", "--max-gen-len", "0",
                            "--temperature", "0", "-q", *words)["generations"]

    def test_a_turn_is_written_as_the_template_has_it(self):
        tokens = self.prompt_of("--prompt", " Hello ")[0]["tokens"]
        plain = self.json_of("generate", TINY_LLAMA, "--prompt", "[INST] Hello [/INST]", "--echo", "--max-gen-len", "0", "-q")
        self.assertEqual(tokens, plain["generations"][0]["tokens"])
        two = self.prompt_of("--prompt", "Hello", "--prompt", "Bye", "--system", "Be brief.")
        self.assertEqual(len(two), 2)
        self.assertIn("Be brief.", two[0]["text"])
        self.assertIn("Bye", two[1]["text"])

    def test_what_does_not_go_together_is_refused(self):
        for words in (["--system", "x"], ["--chat-template", "llama2"], ["--date", "1 Jan 2030"], ["--chat-argument", "x=1"], ["--messages", "x.json"]):
            self.fails(2, "go with --chat", "generate", TINY_LLAMA, "--prompt", "Hello", *words)
        self.fails(2, "--prompt-tokens are taken as they are", "generate", TINY_LLAMA, "--chat", "--prompt-tokens", "1,2")
        path = self.scratch / "messages.json"
        for text in ("", "{}", "[]", "[1]", '[{"content": ""}]', '{"messages": []}'):
            path.write_text(text)
            self.fails(3, ["messages.json", "is not a list of"], "generate", TINY_LLAMA, "--chat", "--chat-template", "llama2", "--messages", path)
        for text in ('[{"role": "tool", "content": ""}]', '[{"role": "user"}]', '[{"role": "user", "content": ""}, {"role": "system", "content": ""}]'):
            path.write_text(text)
            self.fails(3, ["llama2", "knows texts of system, user and assistant alone"], "generate", TINY_LLAMA, "--chat", "--chat-template", "llama2", "--messages", path)
        path.write_text('{"messages": [{"role": "user", "content": "x"}], "tools": [{}]}')
        self.fails(3, ["llama2", "knows no tools"], "generate", TINY_LLAMA, "--chat", "--chat-template", "llama2", "--messages", path)
        self.fails(2, "wants NAME=VALUE", "generate", TINY_LLAMA, "--chat", "--prompt", "x", "--chat-argument", "thinking")

    def test_a_checkpoints_own_template_is_run_with_tools_and_switches(self):
        own = copy_of_tiny_llama(self.scratch / "own")
        (own / "chat_template.jinja").write_text(
            "{% for m in messages %}{{ m.role }}: {{ m.content or m.tool_calls[0].function.name }};{% endfor %}{{ tools | length if tools else 0 }}{{ 'yes' if thinking else 'no' }}")
        path = self.scratch / "request.json"
        path.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]},
                                                 {"role": "tool", "content": "2"}], "tools": [{}, {}]}))
        words = ["generate", own, "--chat", "--echo", "--max-gen-len", "0", "-q", "--messages", path]
        self.assertEqual(self.json_of(*words)["generations"][0]["text"].strip(), "user: Hi;assistant: f;tool: 2;2no")
        self.assertEqual(self.json_of(*words, "--chat-argument", "thinking=true")["generations"][0]["text"].strip(), "user: Hi;assistant: f;tool: 2;2yes")
        (own / "chat_template.jinja").write_text("\n{{ raise_exception('Never.') }}")
        self.fails(2, ["line 2: it refuses this conversation: Never."], *words)
        self.fails(1, ["missing.json"], "generate", TINY_LLAMA, "--chat", "--chat-template", "llama2", "--messages", self.scratch / "missing.json")

    def test_a_text_says_why_it_ended(self):
        words = ["generate", TINY_LLAMA, "--prompt", "The ship", "--temperature", "0"]
        self.assertEqual(self.json_of(*words, "--max-gen-len", "4", "-q")["generations"][0]["finish_reason"], "length")
        done = run(*words, "--max-gen-len", "1000", "--json")
        full = json.loads(done.stdout)["generations"][0]
        self.assertEqual(full["finish_reason"], "context")
        self.assertIn("prompt 1: its text ends where the model's context of 256 tokens is full", done.stderr)
        stopped = self.json_of(*words, "--max-gen-len", "8", "--stop-token", full["tokens"][2], "-q")["generations"][0]
        self.assertEqual(stopped["finish_reason"], "stop")
        self.fails(2, "prompt 2 has 300 tokens", "generate", TINY_LLAMA, "--prompt-tokens", "1", "--prompt-tokens", ",".join(["5"] * 300))


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class TypedChat(CommandLineTest):
    def start(self, *words, model=TINY_LLAMA):
        terminal = Terminal("chat", model, *GREEDY, *words)
        self.addCleanup(terminal.kill)
        terminal.expect("> ")
        return terminal

    def test_answers_and_leaves_at_the_end_of_input(self):
        terminal = self.start("--max-gen-len", "5", "-v")
        terminal.send("Hello\n")
        terminal.expect(r"5 tokens in .* tokens/s")
        terminal.expect("> ")
        terminal.send("/exit\n")
        self.assertEqual(terminal.end(), 0)
        terminal = self.start()
        terminal.send("\x04")
        self.assertEqual(terminal.end(), 0)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        slow = slow_model(self.scratch / "slow")
        terminal = self.start("--max-gen-len", "100000", "--json", model=slow)
        terminal.send("The ship\n")
        terminal.expect("The ship\r\n")
        self.assertIn("cancelled", terminal.press_until("\x03", r'"finish_reason":"(\w+)"').group(1))
        terminal.expect("> ")
        terminal.send("/reset\n")
        terminal.expect("forgotten")
        terminal.send("/exit\n")
        self.assertEqual(terminal.end(), 0)

    def test_ctrl_c_at_the_prompt_discards_the_line_and_twice_says_how_to_leave(self):
        terminal = self.start("--max-gen-len", "5")
        terminal.send("/nonsense\x03")
        terminal.expect(r"\^C")
        terminal.expect("> ")
        terminal.send("\x03")
        terminal.expect("> ")
        self.assertNotIn("ends the chat", terminal.seen)
        terminal.send("\x03")
        terminal.expect("Ctrl-D ends the chat")
        terminal.send("/exit\n")
        self.assertEqual(terminal.end(), 0)

    def test_a_signal_at_the_prompt_does_not_end_it_but_termination_does_and_leaves_the_terminal_sane(self):
        terminal = self.start()
        os.kill(terminal.pid, signal.SIGINT)
        terminal.send("/help\n")
        terminal.expect("/reset")
        terminal.expect("> ")
        os.kill(terminal.pid, signal.SIGTERM)
        self.assertEqual(terminal.end(), -signal.SIGTERM)


def slow_model(path):
    """tiny-llama with a context that takes long to fill."""
    copy_of_tiny_llama(path)
    config = json.loads((path / "config.json").read_text())
    config["max_position_embeddings"] = 200000
    config["eos_token_id"] = []
    (path / "config.json").write_text(json.dumps(config))
    return path


if __name__ == "__main__":
    unittest.main()
