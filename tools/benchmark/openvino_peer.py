#!/usr/bin/env python3
"""OpenVINO's side of peers.py, run by a Python that has openvino (and, for `export`, optimum-intel).

    openvino_peer.py export MODEL DIRECTORY                 4 bits, symmetric, groups of 128
    openvino_peer.py measure DIRECTORY THREADS RUNS         prints JSON
"""
import json
import resource
import sys
import time


def export(model, directory):
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig

    config = OVWeightQuantizationConfig(bits=4, sym=True, group_size=128, ratio=1.0)
    OVModelForCausalLM.from_pretrained(model, export=True, compile=False, quantization_config=config).save_pretrained(directory)


class Model:
    """The exported graph with its state. It has logits of every position, a prompt's too: 6 % of its work for 1.1 G parameters."""

    def __init__(self, directory, threads):
        import openvino

        core = openvino.Core()
        compiled = core.compile_model(core.read_model(f"{directory}/openvino_model.xml"), "CPU",
                                      {"INFERENCE_NUM_THREADS": int(threads), "PERFORMANCE_HINT": "LATENCY"})
        self.request = compiled.create_infer_request()
        self.names = {name for port in compiled.inputs for name in port.get_names()}
        self.past = 0

    def reset(self):
        self.request.reset_state()
        self.past = 0

    def next(self, tokens):
        import numpy

        ids = numpy.array([tokens], dtype=numpy.int64)
        end = self.past + len(tokens)
        inputs = {"input_ids": ids, "attention_mask": numpy.ones((1, end), dtype=numpy.int64),
                  "position_ids": numpy.arange(self.past, end, dtype=numpy.int64)[None], "beam_idx": numpy.zeros(1, dtype=numpy.int32)}
        self.request.infer({name: value for name, value in inputs.items() if name in self.names})
        self.past = end
        return int(self.request.get_output_tensor(0).data[0, -1].argmax())


def prompt(count):
    return [token * 7919 % 32000 for token in range(count)]


def measure(directory, threads, runs):
    start = time.perf_counter()
    model = Model(directory, threads)
    model.next(prompt(8))
    found = {"load_to_first_token_s": time.perf_counter() - start, "prefill": [], "decode": []}
    for run in range(int(runs) + 1):  # the first is not counted
        model.reset()
        start = time.perf_counter()
        model.next(prompt(512))
        prefill = 512 / (time.perf_counter() - start)
        model.reset()
        token = model.next(prompt(16))
        start = time.perf_counter()
        for _ in range(64):
            token = model.next([token])
        decode = 64 / (time.perf_counter() - start)
        if run:
            found["prefill"].append(prefill)
            found["decode"].append(decode)
    found["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(found))


if __name__ == "__main__":
    verbs = {"export": (export, 2), "measure": (measure, 3)}
    name, words = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if name not in verbs or len(words) != verbs[name][1]:
        sys.exit(__doc__.strip())
    verbs[name][0](*words)
