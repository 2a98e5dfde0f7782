"""`doctor` says what the machine is and what it runs, works without LibTorch, and names what is broken with a fix."""
import json
import os
import shutil
import subprocess
import unittest

from command_line import LONGEST, MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest

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
                self.assertTrue(device["reason"], device)
                self.assertEqual((device["works"], device["present"]), (device["count"] > 0,) * 2, device)
            self.assertEqual(found["onednn"]["version"].split(".")[:2], found["onednn"]["built_against"].split(".")[:2])

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

    def test_what_is_not_there_computes_nothing(self):
        copy = self.copy_of_the_program()
        for variables in [{"ONEDNN_MAX_CPU_ISA": "AVX2"}, {"HALFBYTE_ONEDNN": "off"}, {}]:
            found = json.loads(self.run_copy(copy, "--json", env={**os.environ, **variables}).stdout)
            has_brgemm = found["onednn"]["brgemm_float32"] or found["onednn"]["brgemm_bfloat16"]
            reasons = [trial["reason"] for trial in found["trials"] if "oneDNN" in trial["reason"]]
            self.assertTrue(has_brgemm or not reasons, (variables, reasons))

    def test_a_level_that_is_none_is_wrong_usage_for_the_other_verbs(self):
        environment = {**os.environ, "HALFBYTE_ISA": "avx1024"}
        commands = [["quantize", TINY_LLAMA, self.scratch / "x"]]
        if MODEL_PROGRAM.exists():
            commands += [["generate", TINY_LLAMA, "--prompt-tokens", "1,300"], ["bench", TINY_LLAMA]]
        for words in commands:
            self.fails(2, ["HALFBYTE_ISA", "'avx1024'", "the levels are", "ref"], *words, env=environment)

    def copy_of_the_program(self):
        copy = self.scratch / "bin" / "halfbyte"
        copy.parent.mkdir()
        shutil.copy(PROGRAM, copy)
        return copy

    def run_copy(self, copy, *words, **options):
        return subprocess.run([copy, "doctor", *words], capture_output=True, encoding="utf-8", check=False, timeout=LONGEST, **options)

    def test_without_libtorch_it_says_what_to_do(self):
        result = self.run_copy(self.copy_of_the_program(), "--json")
        found = json.loads(result.stdout)
        self.assertEqual((result.returncode, found["torch"]), (0, None))
        self.assertTrue(any("-DHALFBYTE_WITH_TORCH=ON" in note for note in found["notes"]), found["notes"])

    def test_a_second_program_that_does_not_start_is_broken(self):
        copy = self.copy_of_the_program()
        for script, part, fix in [("echo 'libtorch_cpu.so: cannot open shared object file' >&2; exit 127", "libtorch_cpu.so", "put LibTorch back"),
                                  ("kill -ILL $$", "instruction that this CPU lacks", "on this machine"),
                                  ("echo '{}'", "status 0", "build again")]:
            self.model_program(script)
            result = self.run_copy(copy)
            self.assertEqual((result.returncode, result.stderr), (1, ""), script)
            self.assertRegex(result.stdout, rf"(?m)^broken: .*{part}")
            self.assertRegex(result.stdout, rf"(?m)^   fix: .*{fix}")

    def model_program(self, script):
        """A second program beside the copy that does what the script says."""
        second = self.scratch / "libexec" / "halfbyte" / "halfbyte-model"
        second.parent.mkdir(parents=True, exist_ok=True)
        second.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        second.chmod(0o755)

    def libtorch_says(self, **what):
        """A second program that answers as LibTorch's side of `doctor` does, for a machine that is not this one."""
        devices = [{"name": "CPU", "present": True, "built": True, "count": 1, "works": True, "reason": "2 threads"}]
        for name in ["CUDA", "XPU", "MPS"]:
            built = name in what.get("built", [])
            works = name in what.get("works", [])
            devices.append({"name": name, "present": works, "built": built, "count": int(works), "works": works,
                            "reason": what.get("reason", "LibTorch finds none" if built else "built without it")})
        said = {"built_against": "2.13.0", "found": what.get("found", "2.13.0"), "library": "libtorch_cpu.so", "cpu_capability": "AVX2",
                "onednn": "3.12.0", "threads": 2, "cuda_runtime": what.get("cuda", ""), "devices": devices, "trials": [], "broken": []}
        self.model_program(f"cat <<'END'\n{json.dumps(said)}\nEND")

    def diagnosis(self, copy, system):
        """(result, what was printed) of `doctor --json` on a machine that looks like this tree."""
        environment = {**os.environ, "HALFBYTE_SYSROOT": str(system), "HALFBYTE_ISA": "ref", "HALFBYTE_ONEDNN": "off"}
        result = self.run_copy(copy, "--json", env=environment)
        return result, json.loads(result.stdout)

    def system(self, name, vendor="0x10de", kind="0x030200", driver="nvidia", files=()):
        """A tree with one PCI device, its driver and other files (path: text)."""
        root = self.scratch / name
        device = root / "sys/bus/pci/devices/0000:01:00.0"
        device.mkdir(parents=True)
        for file, text in [("vendor", vendor), ("class", kind), ("device", "0x2330")]:
            (device / file).write_text(text + "\n", encoding="ascii")
        if driver:
            (device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        for file, text in dict(files).items():
            path = root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="ascii")
        return root

    NVIDIA = {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\nGCC\n",
              "dev/nvidia0": "", "dev/nvidiactl": "", "usr/lib/x86_64-linux-gnu/libcuda.so.1": ""}
    INTEL = {"dev/dri/card0": "", "dev/dri/renderD128": "", "usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1": ""}

    def test_a_gpu_that_libtorch_uses_needs_no_word(self):
        copy = self.copy_of_the_program()
        self.libtorch_says(built=["CUDA"], works=["CUDA"], cuda="12.6")
        result, found = self.diagnosis(copy, self.system("good", files=self.NVIDIA))
        self.assertEqual((result.returncode, found["broken"]), (0, []))
        self.assertEqual(found["gpus"], [{"vendor": "NVIDIA", "id": "10de:2330", "address": "0000:01:00.0", "driver": "nvidia", "driver_version": "550.54.14"}])
        self.assertFalse([note for note in found["notes"] if "GPU" in note])

    def test_a_gpu_beside_a_libtorch_for_the_cpu_is_a_note_with_the_fix(self):
        copy = self.copy_of_the_program()
        self.libtorch_says()
        for system, vendor, wanted in [(self.system("nvidia", files=self.NVIDIA), "NVIDIA", "CUDA"),
                                       (self.system("intel", "0x8086", "0x030000", "xe", self.INTEL), "Intel", "XPU"),
                                       (self.system("amd", "0x1002", "0x120000", "amdgpu", {"dev/kfd": "", "opt/rocm/lib/libhsa-runtime64.so.1": ""}), "AMD", "ROCm")]:
            result, found = self.diagnosis(copy, system)
            self.assertEqual((result.returncode, found["broken"]), (0, []), vendor)
            notes = [note for note in found["notes"] if "GPU" in note]
            self.assertEqual(len(notes), 1, notes)
            for part in [f"{vendor} GPU", f"built without {wanted}", "docs/devices.md"]:
                self.assertIn(part, notes[0])

    def test_what_keeps_libtorch_from_a_gpu_is_broken_with_the_fix(self):
        copy = self.copy_of_the_program()
        without = lambda files, *names: {path: text for path, text in files.items() if not path.startswith(names)}
        old = {**self.NVIDIA, "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  470.82.01  Release Build\n"}
        for name, options, backend, parts in [
                ("none", {"driver": "", "files": {}}, "CUDA", ["has no driver", "install NVIDIA's driver"]),
                ("nouveau", {"driver": "nouveau", "files": {}}, "CUDA", ["driver nouveau", "install NVIDIA's driver"]),
                ("vfio", {"driver": "vfio-pci", "files": {}}, "CUDA", ["virtual machine"]),
                ("container", {"files": without(self.NVIDIA, "dev/")}, "CUDA", ["/dev are missing", "--gpus all"]),
                ("old", {"files": old}, "CUDA", ["470.82.01, too old for LibTorch's CUDA 12.6", "525 or newer"]),
                ("library", {"files": without(self.NVIDIA, "usr/")}, "CUDA", ["library is missing", "libcuda1"]),
                ("unknown", {"files": self.NVIDIA}, "CUDA", ["LibTorch cannot use the NVIDIA GPU", "LibTorch finds none"]),
                ("nodes", {"vendor": "0x8086", "driver": "i915", "files": without(self.INTEL, "dev/")}, "XPU", ["/dev are missing", "--device /dev/dri"]),
                ("runtime", {"vendor": "0x8086", "driver": "xe", "files": without(self.INTEL, "usr/")}, "XPU", ["library is missing", "libze-intel-gpu1"]),
                ("rocm", {"vendor": "0x1002", "driver": "", "files": {}}, "CUDA", ["AMD GPU", "amdgpu-install"])]:
            self.libtorch_says(built=[backend], cuda="12.6")
            result, found = self.diagnosis(copy, self.system(name, **options))
            self.assertEqual((result.returncode, len(found["broken"])), (1, 1), f"{name}: {found['broken']}")
            text = found["broken"][0]["problem"] + "; " + found["broken"][0]["fix"]
            for part in parts:
                self.assertIn(part, text, name)

    def test_without_a_gpu_nothing_is_said_of_one(self):
        copy = self.copy_of_the_program()
        self.libtorch_says()
        for system in [self.scratch / "nothing", self.system("network", "0x8086", "0x020000", "e1000e"), self.system("server", "0x1a03", "0x030000", "ast")]:
            _, found = self.diagnosis(copy, system)
            self.assertEqual(found["gpus"], [], system)
            self.assertFalse([note for note in found["notes"] if "GPU" in note], system)
            environment = {**os.environ, "HALFBYTE_SYSROOT": str(system)}
            self.assertRegex(self.run_copy(copy, env=environment).stdout, r"(?m)^  GPUs +none$")

    def test_a_driver_without_a_list_of_devices_is_a_gpu(self):
        copy = self.copy_of_the_program()
        self.libtorch_says()
        root = self.system("sandbox", "0x1a03", "0x030000", "ast", self.NVIDIA)
        _, found = self.diagnosis(copy, root)
        self.assertEqual([(gpu["vendor"], gpu["id"], gpu["driver_version"]) for gpu in found["gpus"]], [("NVIDIA", "", "550.54.14")])

    def test_another_patch_version_of_libtorch_is_a_note(self):
        copy = self.copy_of_the_program()
        self.libtorch_says(found="2.13.1")
        result, found = self.diagnosis(copy, self.scratch / "nothing")
        self.assertEqual(result.returncode, 0)
        self.assertIn("LibTorch 2.13.1 is running; halfbyte was built against 2.13.0", found["notes"])

    def test_mistakes(self):
        self.fails(2, ["unexpected argument 'now'"], "doctor", "now")
        self.fails(2, ["did you mean '--json'"], "doctor", "--jsn")


if __name__ == "__main__":
    unittest.main()
