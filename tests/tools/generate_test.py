"""halfbyte generate: where prompts come from, how tokens are chosen, and what ends a text."""
import json
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, run

GREEDY = ["--temperature", "0", "--dtype", "float32", "-q"]


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Generate(CommandLineTest):
    def generations(self, *words, **options):
        done = run("generate", TINY_LLAMA, *GREEDY, *words, "--json", **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return json.loads(done.stdout)["generations"]

    def texts(self, *words, **options):
        return [generation["text"] for generation in self.generations("--max-gen-len", 6, "--echo", *words, **options)]

    def test_prompts_come_from_words_pipes_and_files_in_that_order(self):
        wanted = self.texts("--prompt", "The ship", "--prompt", "In the beginning", "--prompt", "One\nTwo")
        one, two = self.scratch / "one", self.scratch / "two"
        one.write_bytes(b"In the beginning\r\n")
        two.write_text("One\nTwo\n")
        self.assertEqual(self.texts("--prompt-file", one, "--prompt", "-", "--prompt-file", two, input="The ship\n"), wanted)
        self.assertEqual(self.texts("--prompt-file", "-", input="One\nTwo"), wanted[2:])

    def test_what_is_no_prompt_is_refused(self):
        self.fails(2, ["--prompt TEXT", "--prompt-file FILE", "--prompt - reads standard input"], "generate", TINY_LLAMA, input="Hello")
        self.fails(2, "give - once", "generate", TINY_LLAMA, "--prompt", "-", "--prompt-file", "-", input="")
        self.fails(1, "missing.txt", "generate", TINY_LLAMA, "--prompt-file", self.scratch / "missing.txt")
        self.fails(1, "is a directory", "generate", TINY_LLAMA, "--prompt-file", self.scratch)
        self.fails(2, "an empty text stops nothing", "generate", TINY_LLAMA, "--prompt", "x", "--stop", "")

    def test_a_text_ends_before_a_stop_text_wherever_tokens_have_their_borders(self):
        whole = self.generations("--prompt", "The ship", "--max-gen-len", 40)[0]["text"]
        for begin in (2, 11, 19):
            for size in (1, 6):
                stop = whole[begin:begin + size]
                words = ["--prompt", "The ship", "--max-gen-len", 40, "--stop", "nowhere at all", "--stop", stop]
                wanted = whole[:whole.index(stop)]
                if size == 6:
                    streamed = run("generate", TINY_LLAMA, *GREEDY, *words).stdout
                    self.assertEqual(streamed, wanted + "\n", stop)
                    continue
                generation = self.generations(*words)[0]
                self.assertEqual((generation["text"], generation["finish_reason"]), (wanted, "stop"), stop)
                self.assertLess(len(generation["tokens"]), 40)

    def test_guesses_change_no_text(self):
        words = ["--prompt", "One two three. One two three. One two", "--max-gen-len", 60, "--ignore-eos"]
        wanted = self.generations(*words)[0]
        self.assertEqual((wanted["guessed_tokens"], wanted["right_guesses"]), (0, 0))
        for how in (["--speculate", "lookup"], ["--draft", TINY_LLAMA]):
            found = self.generations(*words, *how)[0]
            self.assertEqual((found["tokens"], found["text"]), (wanted["tokens"], wanted["text"]), how)
            self.assertGreater(found["guessed_tokens"], 0, how)
        self.fails(1, "no-such-model", "generate", TINY_LLAMA, "--prompt", "x", "--draft", "no-such-model")
        self.fails(2, "--speculate", "generate", TINY_LLAMA, "--prompt", "x", "--speculate", "always")

    def test_a_stop_text_is_each_prompts_own_and_not_looked_for_in_it(self):
        ship, beginning = self.generations("--prompt", "The ship", "--prompt", "In the beginning", "--max-gen-len", 30)
        stop = ship["text"][4:9]
        ours = self.generations("--prompt", "The ship", "--prompt", "In the beginning", "--max-gen-len", 30, "--stop", stop)
        self.assertEqual([text["text"] for text in ours], [text["text"].split(stop)[0] for text in (ship, beginning)])
        echoed = self.generations("--prompt", "The ship", "--max-gen-len", 30, "--echo", "--stop", "ship")[0]["text"]
        self.assertTrue(echoed.startswith("The ship") and len(echoed) > 20, echoed)
        done = run("generate", TINY_LLAMA, *GREEDY, "--prompt", "The ship", "--prompt", "In the beginning", "--max-gen-len", 30, "--stop", stop)
        self.assertIn("[1] " + ship["text"].split(stop)[0] + "\n[2] ", done.stdout)

    def test_options_of_sampling_do_what_they_say(self):
        greedy = self.generations("--prompt", "The ship", "--max-gen-len", 12)[0]["tokens"]
        hot = ["generate", TINY_LLAMA, "--dtype", "float32", "-q", "--prompt", "The ship", "--max-gen-len", 12, "--temperature", 2, "--top-p", 1]
        tokens = [self.json_of(*hot, *words)["generations"][0]["tokens"] for words in ([], ["--top-k", 1], ["--min-p", 1])]
        self.assertNotEqual(tokens[0], greedy)
        self.assertEqual(tokens[1:], [greedy, greedy])
        long = self.generations("--prompt", "The ship", "--max-gen-len", 60, "--repetition-penalty", 5)[0]["tokens"]
        self.assertEqual(len(set(long)), len(long))
        for words, part in ((["--top-k", -1], "--top-k"), (["--min-p", 2], "--min-p"), (["--repetition-penalty", 0], "--repetition-penalty")):
            self.fails(2, part, "generate", TINY_LLAMA, "--prompt", "x", *words)

    def test_texts_and_errors_count_from_one(self):
        done = run("generate", TINY_LLAMA, *GREEDY, "--prompt-tokens", "1,300", "--prompt-tokens", "1,301", "--max-gen-len", 2)
        self.assertEqual([line[:4] for line in done.stdout.splitlines()], ["[1] ", "[2] "])
        self.fails(2, "prompt 1 has token id 5000", "generate", TINY_LLAMA, "--prompt-tokens", "5000", "--prompt-tokens", "1")

    def test_a_chat_answer_ends_before_a_stop_text(self):
        words = ["--chat-template", "zephyr", *GREEDY, "--max-gen-len", 20, "--json"]
        whole = json.loads(run("chat", TINY_LLAMA, *words, input="Hello\n").stdout)["text"]
        stop = whole[3:6]
        answer = json.loads(run("chat", TINY_LLAMA, *words, "--stop", stop, input="Hello\n").stdout)
        self.assertEqual((answer["text"], answer["finish_reason"]), (whole[:whole.index(stop)], "stop"))


if __name__ == "__main__":
    unittest.main()
