"""`doctor` says what the machine is and what it runs, works without LibTorch, and names what is broken with a fix."""
import json
import os
import pathlib
import shutil
import subprocess
import unittest

from command_line import MODEL_PROGRAM, PROGRAM, CommandLineTest

FLOATS = {"float32", "bfloat16", "float16"}


class Doctor(CommandLineTest):
    def test_the_text(self):
        text = self.succeeds("doctor")
        for part in ["halfbyte", "CPU", "kernels", "oneDNN", "LibTorch", "low-bit linear, one row", "how that is known", "all is well"]:
            self.assertIn(part, text)

    def test_every_operation_was_tried_in_every_dtype(self):
        found = self.json_of("doctor")
        self.assertEqual((found["well"], found["broken"]), (True, []))
        tried = {}
        for trial in found["trials"]:
            self.assertIn(trial["verdict"], ["native", "widened", "refused"], trial)
            self.assertTrue(trial["reason"], trial)
            if trial["verdict"] != "refused":
                self.assertLess(trial["rel_rmse"], 2e-2 if trial["dtype"] != "float32" else 1e-5, trial)
            tried.setdefault(trial["operation"], set()).add(trial["dtype"])
        for operation in ["low-bit linear, one row", "low-bit linear, many rows", "dense linear, one row", "dense linear, many rows"]:
            self.assertEqual(tried[operation], FLOATS, operation)
        self.assertIn(found["kernels"]["isa"], found["kernels"]["available"])
        self.assertGreater(found["machine"]["memory_bytes"], 0)
        if MODEL_PROGRAM.exists():
            for operation in ["LibTorch softmax", "LibTorch attention", "LibTorch linear, many rows"]:
                self.assertEqual(tried[operation], FLOATS, operation)
            self.assertEqual(found["torch"]["found"].split(".")[:2], found["torch"]["built_against"].split(".")[:2])
            self.assertEqual({device["name"] for device in found["torch"]["devices"]}, {"CPU", "CUDA", "XPU", "MPS"})
            for device in found["torch"]["devices"]:
                self.assertTrue(device["present"] or device["reason"], device)

    def test_the_kernels_that_are_forced_are_the_ones_that_are_tried(self):
        environment = {**os.environ, "HALFBYTE_ISA": "ref", "HALFBYTE_ONEDNN": "off"}
        found = json.loads(self.run_copy(self.copy_of_the_program(), "--json", env=environment).stdout)
        self.assertEqual((found["kernels"]["isa"], found["onednn"]["available"]), ("ref", False))
        self.assertIn("HALFBYTE_ONEDNN", found["onednn"]["why_not"])
        self.assertTrue(any("prefill" in note for note in found["notes"]), found["notes"])
        for trial in found["trials"]:
            if trial["dtype"] == "bfloat16":
                self.assertEqual(trial["verdict"], "widened", trial)  # nobody is left who multiplies in bfloat16

    def test_a_level_that_is_none_is_broken(self):
        result = self.run_copy(self.copy_of_the_program(), "--json", env={**os.environ, "HALFBYTE_ISA": "avx1024"})
        found = json.loads(result.stdout)
        self.assertEqual((result.returncode, found["well"]), (1, False))
        self.assertIn("avx1024", found["broken"][0]["problem"])
        self.assertEqual(found["broken"][0]["fix"], "unset HALFBYTE_ISA")

    def copy_of_the_program(self):
        copy = self.scratch / "bin" / "halfbyte"
        copy.parent.mkdir()
        shutil.copy(PROGRAM, copy)
        return copy

    def run_copy(self, copy, *words, **options):
        return subprocess.run([copy, "doctor", *words], capture_output=True, encoding="utf-8", check=False, **options)

    def test_without_libtorch_it_says_what_to_do(self):
        result = self.run_copy(self.copy_of_the_program(), "--json")
        found = json.loads(result.stdout)
        self.assertEqual((result.returncode, found["torch"]), (0, None))
        self.assertTrue(any("-DHALFBYTE_WITH_TORCH=ON" in note for note in found["notes"]), found["notes"])

    def test_a_second_program_that_does_not_start_is_broken(self):
        copy = self.copy_of_the_program()
        second = pathlib.Path(self.scratch, "libexec", "halfbyte", "halfbyte-model")
        second.parent.mkdir(parents=True)
        for script, part, fix in [("echo 'libtorch_cpu.so: cannot open shared object file' >&2; exit 127", "libtorch_cpu.so", "put LibTorch back"),
                                  ("kill -ILL $$", "instruction that this CPU lacks", "on this machine"),
                                  ("echo '{}'", "status 0", "build again")]:
            second.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
            second.chmod(0o755)
            result = self.run_copy(copy)
            self.assertEqual((result.returncode, result.stderr), (1, ""), script)
            self.assertRegex(result.stdout, rf"(?m)^broken: .*{part}")
            self.assertRegex(result.stdout, rf"(?m)^   fix: .*{fix}")

    def test_mistakes(self):
        self.fails(2, ["unexpected argument 'now'"], "doctor", "now")
        self.fails(2, ["did you mean '--json'"], "doctor", "--jsn")


if __name__ == "__main__":
    unittest.main()
