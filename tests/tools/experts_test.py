"""Experts of a Mixtral, each in matrices of its own or all of a layer stacked in one tensor: the same model."""
import json
import struct
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, write_safetensors

MIXTRAL = TINY_LLAMA.parent / "families" / "mixtral"
PROMPT = ["--prompt-tokens", "1,30,31,32,33,34", "--prompt-tokens", "1,200"]
SCHEMES = ["sym_int4", "sym_int8", "asym_int4", "nf4"]


def tensors_of(path):
    data = path.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    return {name: (entry["dtype"], entry["shape"], data[end:][slice(*entry["data_offsets"])])
            for name, entry in json.loads(data[8:end]).items() if name != "__metadata__"}


def stacked(tensors, layers, experts):
    """As transformers 5 holds them: gate's rows, then up's, expert after expert."""
    out = {name: value for name, value in tensors.items() if ".block_sparse_moe." not in name}
    for layer in range(layers):
        old, new = f"model.layers.{layer}.block_sparse_moe.", f"model.layers.{layer}.mlp."
        of = lambda expert, name: tensors[f"{old}experts.{expert}.{name}.weight"]
        dtype, (inner, hidden), _ = of(0, "w1")
        out[new + "gate.weight"] = tensors[old + "gate.weight"]
        out[new + "experts.gate_up_proj"] = (dtype, [experts, 2 * inner, hidden], b"".join(of(e, "w1")[2] + of(e, "w3")[2] for e in range(experts)))
        out[new + "experts.down_proj"] = (dtype, [experts, hidden, inner], b"".join(of(e, "w2")[2] for e in range(experts)))
    return out


class Experts(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.stacked = self.scratch / "stacked"
        self.stacked.mkdir()
        config = (MIXTRAL / "config.json").read_text()
        (self.stacked / "config.json").write_text(config)
        words = json.loads(config)
        write_safetensors(self.stacked / "model.safetensors",
                          stacked(tensors_of(MIXTRAL / "model.safetensors"), words["num_hidden_layers"], words["num_local_experts"]))

    def logprobs(self, checkpoint):
        done = self.json_of("generate", checkpoint, *PROMPT, "--max-gen-len", "6", "--temperature", "0", "--logprobs", "--echo", "--dtype", "float32", "-q")
        return [(generation["tokens"], generation["logprobs"]) for generation in done["generations"]]

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
    def test_both_compute_the_same(self):
        self.assertEqual(self.logprobs(self.stacked), self.logprobs(MIXTRAL))
        for scheme in SCHEMES:
            options = ["--scheme", scheme, "--group-size", "32" if scheme != "nf4" else "64", "--overwrite", "-q"]
            self.succeeds("quantize", MIXTRAL, self.scratch / "single-4bit", *options)
            self.succeeds("quantize", self.stacked, self.scratch / "stacked-4bit", *options, "--halfbyte-only")
            self.assertEqual(self.logprobs(self.scratch / "stacked-4bit"), self.logprobs(self.scratch / "single-4bit"), scheme)

    def test_a_stack_is_quantised_verified_and_brought_back(self):
        result = self.scratch / "stacked-4bit"
        self.succeeds("quantize", self.stacked, result, "--halfbyte-only", "-q")
        found = {tensor["name"]: tensor for tensor in self.json_of("inspect", result, "--tensors")["tensors"]}
        stack = found["model.layers.0.mlp.experts.gate_up_proj"]
        self.assertEqual((stack["stored"], stack["shape"]), ("sym_int4", [4, 512, 128]))
        self.assertEqual(found["model.layers.0.mlp.gate.weight"]["stored"], "bfloat16")
        self.succeeds("verify", result, "-q")
        self.succeeds("verify", result, "--against", self.stacked, "-q")
        self.succeeds("dequantize", result, self.scratch / "back", "-q")
        shapes = {name: shape for name, (_, shape, _) in tensors_of(self.scratch / "back" / "model.safetensors").items()}
        wanted = {name: shape for name, (_, shape, _) in tensors_of(self.stacked / "model.safetensors").items()}
        self.assertEqual(shapes, wanted)

    def test_others_cannot_read_packed_stacks_and_that_is_said(self):
        self.fails(2, ["experts stacked", "--halfbyte-only"], "quantize", self.stacked, self.scratch / "out")


if __name__ == "__main__":
    unittest.main()
