#!/usr/bin/env python3
"""Makes random models of every family with transformers, and compares what halfbyte computes with what transformers does.

    families_check.py HALFBYTE [VARIANTS [SEED]]    exit status 0: agrees, 1: does not, 77: transformers is not installed

Each variant has sizes, head counts, biases, ties, rope scalings, windows and dtypes drawn at random. In float32, every
log-probability of a 48-token prompt must agree within 2e-4 of the largest, and 12 greedy tokens, which go through the
key-value cache, must be equal, two prompts of different lengths in one batch too. ChatGLM, which transformers has not, is compared with
a reference of its own below.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import packages

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    packages.skip(error)

VOCABULARY = 97
PROMPT, SHORT_PROMPT, NEW_TOKENS = 48, 19, 12
BOUND = 2e-4


def rope(choose, head_dim, kinds):
    kind = choose(kinds)
    theta = choose([10000.0, 500000.0])
    out = {"rope_type": kind, "rope_theta": theta}
    if kind in ("linear", "dynamic", "llama3", "yarn"):
        out["factor"] = choose([2.0, 4.0])
    if kind == "llama3":
        out |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind in ("llama3", "yarn"):
        out["original_max_position_embeddings"] = 32
    if kind == "yarn" and choose([False, True]):
        out |= {"beta_fast": 16.0, "beta_slow": 2.0, "truncate": choose([False, True])}
    if kind == "longrope":
        pairs = head_dim // 2
        out |= {"short_factor": [1.0 + 0.05 * i for i in range(pairs)], "long_factor": [1.0 + 0.5 * i for i in range(pairs)]}
    return out


ALL_ROPES = ["default", "linear", "dynamic", "llama3", "yarn"]


def common(choose):
    kv_heads = choose([1, 2, 3])
    heads = kv_heads * choose([1, 2, 4])
    head_dim = choose([8, 12, 20, 32])
    return {
        "vocab_size": VOCABULARY, "hidden_size": heads * choose([8, 12, 20, 43]), "intermediate_size": choose([64, 96, 172]),
        "num_hidden_layers": choose([1, 2, 3]), "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim,
        "max_position_embeddings": 128, "rms_norm_eps": choose([1e-5, 1e-6]), "tie_word_embeddings": choose([False, True]),
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "initializer_range": 0.15,
    }


def short_rope(choose, words, kinds=None):
    """Rope scaling that a 48-token prompt goes beyond."""
    words["rope_parameters"] = rope(choose, words["head_dim"], kinds or ALL_ROPES)
    if words["rope_parameters"]["rope_type"] == "dynamic":
        words["max_position_embeddings"] = 32
    return words


def llama(choose):
    return "Llama", short_rope(choose, common(choose)) | {"attention_bias": choose([False, True]), "mlp_bias": choose([False, True])}


def mistral(choose):
    return "Mistral", common(choose) | {"sliding_window": choose([None, 5, 16, 64])}


def qwen2(choose):
    words = short_rope(choose, common(choose))
    words["hidden_size"] = words["num_attention_heads"] * words.pop("head_dim")  # these classes have no head_dim
    return "Qwen2", words | {"use_sliding_window": choose([False, True]), "sliding_window": 9, "max_window_layers": choose([0, 1])}


def qwen3(choose):
    return "Qwen3", short_rope(choose, common(choose)) | {
        "attention_bias": choose([False, True]), "use_sliding_window": choose([False, True]), "sliding_window": 9, "max_window_layers": 1}


def phi3(choose):
    words = common(choose)
    words["hidden_size"] = words["num_attention_heads"] * words.pop("head_dim")
    dim = words["hidden_size"] // words["num_attention_heads"]
    partial = choose([1.0, 0.5]) if dim % 4 == 0 else 1.0
    words["rope_parameters"] = rope(choose, int(dim * partial), ["default", "longrope"]) | {"partial_rotary_factor": partial}
    long = words["rope_parameters"]["rope_type"] == "longrope"
    return "Phi3", words | {"original_max_position_embeddings": choose([16, 24, 52]) if long else 128, "sliding_window": choose([None, 11])}


def gemma(choose):
    return "Gemma", common(choose) | {"attention_bias": choose([False, True]), "tie_word_embeddings": True}


def gemma2(choose):
    return "Gemma2", common(choose) | {
        "tie_word_embeddings": choose([False, True]), "sliding_window": choose([7, 64]), "query_pre_attn_scalar": choose([16, 144]),
        "attn_logit_softcapping": choose([None, 5.0]), "final_logit_softcapping": choose([None, 3.0])}


def glm(choose):
    words = common(choose)
    words["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": choose([0.5, 1.0])}
    return choose(["Glm", "Glm4"]), words | {"attention_bias": choose([False, True])}


def mixtral(choose):
    return "Mixtral", common(choose) | {
        "num_local_experts": 5, "num_experts_per_tok": choose([1, 2, 5]), "sliding_window": choose([None, 13])}


def qwen3_moe(choose):
    words = common(choose) | {
        "num_experts": 6, "num_experts_per_tok": choose([1, 3]), "moe_intermediate_size": choose([32, 60]),
        "norm_topk_prob": choose([False, True]), "decoder_sparse_step": choose([1, 2]), "mlp_only_layers": choose([[], [0]])}
    return "Qwen3Moe", words


def chatglm(choose):
    words = common(choose)
    multi_query = choose([True, False])
    return "ChatGLM", {
        "model_type": "chatglm", "hidden_size": words["hidden_size"], "ffn_hidden_size": words["intermediate_size"],
        "num_layers": words["num_hidden_layers"], "num_attention_heads": words["num_attention_heads"],
        "kv_channels": choose([8, 12, 32]), "multi_query_attention": multi_query, "multi_query_group_num": words["num_key_value_heads"],
        "padded_vocab_size": VOCABULARY, "seq_length": 128, "layernorm_epsilon": 1e-5, "add_bias_linear": choose([False, True]),
        "add_qkv_bias": choose([False, True]), "rope_ratio": choose([1, 50]), "post_layer_norm": choose([True, True, False]),
        "apply_residual_connection_post_layernorm": choose([False, False, True]), "rmsnorm": True, "eos_token_id": 2, "pad_token_id": 0}


FAMILIES = [llama, mistral, qwen2, qwen3, phi3, gemma, gemma2, glm, mixtral, qwen3_moe, chatglm]


class ChatGLM:
    """Just enough of ChatGLM2/3: fused projections, neighbours turned in the first half of each head."""

    def __init__(self, words):
        self.words = words
        heads, dim, hidden = words["num_attention_heads"], words["kv_channels"], words["hidden_size"]
        groups = words["multi_query_group_num"] if words["multi_query_attention"] else heads
        self.heads, self.dim, self.groups = heads, dim, groups
        rows, inner = (heads + 2 * groups) * dim, words["ffn_hidden_size"]
        shapes = {"transformer.embedding.word_embeddings.weight": (VOCABULARY, hidden), "transformer.output_layer.weight": (VOCABULARY, hidden)}
        if words["post_layer_norm"]:
            shapes["transformer.encoder.final_layernorm.weight"] = (hidden,)
        for layer in range(words["num_layers"]):
            p = f"transformer.encoder.layers.{layer}."
            for name in ("input_layernorm", "post_attention_layernorm"):
                shapes[f"{p}{name}.weight"] = (hidden,)
            for name, out, inputs, bias in (
                ("self_attention.query_key_value", rows, hidden, words["add_bias_linear"] or words["add_qkv_bias"]),
                ("self_attention.dense", hidden, heads * dim, words["add_bias_linear"]),
                ("mlp.dense_h_to_4h", 2 * inner, hidden, words["add_bias_linear"]),
                ("mlp.dense_4h_to_h", hidden, inner, words["add_bias_linear"])):
                shapes[f"{p}{name}.weight"] = (out, inputs)
                if bias:
                    shapes[f"{p}{name}.bias"] = (out,)
        self.state = {name: torch.randn(shape) * (0.15 if len(shape) == 2 else 0.3) + (1.0 if "norm" in name else 0.0)
                      for name, shape in shapes.items()}

    def save_pretrained(self, folder):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(self.words))
        safetensors.torch.save_file(self.state, folder / "model.safetensors", metadata={"format": "pt"})

    def linear(self, name, x):
        return torch.nn.functional.linear(x, self.state[name + ".weight"], self.state.get(name + ".bias"))

    def norm(self, name, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.words["layernorm_epsilon"])
        return x * scale * self.state[name + ".weight"]

    def turn(self, x):
        half = self.dim // 2
        frequencies = (10000.0 * self.words["rope_ratio"]) ** -(torch.arange(0, half, 2).float() / half)
        angles = torch.outer(torch.arange(x.shape[0]).float(), frequencies)[:, None, :]
        turned = torch.view_as_real(torch.view_as_complex(x[..., :half].reshape(*x.shape[:-1], -1, 2)) * torch.polar(torch.ones_like(angles), angles))
        return torch.cat([turned.flatten(-2), x[..., half:]], -1)

    def attention(self, name, x):
        mixed = self.linear(name + ".query_key_value", x)
        if self.words["multi_query_attention"]:
            q, k, v = (t.view(len(x), -1, self.dim) for t in mixed.split([self.heads * self.dim, self.groups * self.dim, self.groups * self.dim], -1))
        else:
            q, k, v = mixed.view(len(x), self.heads, 3 * self.dim).split(self.dim, -1)
        q, k = self.turn(q), self.turn(k)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / self.dim**0.5
        scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), float("-inf")).softmax(-1)
        return self.linear(name + ".dense", torch.einsum("hqk,khd->qhd", scores, v).flatten(1))

    def logits(self, ids):
        x = self.state["transformer.embedding.word_embeddings.weight"][ids]
        after = self.words["apply_residual_connection_post_layernorm"]
        for layer in range(self.words["num_layers"]):
            p = f"transformer.encoder.layers.{layer}."
            y = self.norm(p + "input_layernorm", x)
            x = (y if after else x) + self.attention(p + "self_attention", y)
            y = self.norm(p + "post_attention_layernorm", x)
            gate, up = self.linear(p + "mlp.dense_h_to_4h", y).chunk(2, -1)
            x = (y if after else x) + self.linear(p + "mlp.dense_4h_to_h", torch.nn.functional.silu(gate) * up)
        if self.words["post_layer_norm"]:
            x = self.norm("transformer.encoder.final_layernorm", x)
        return self.linear("transformer.output_layer", x)

    def greedy(self, ids):
        ids = list(ids)
        for _ in range(NEW_TOKENS):
            ids.append(int(self.logits(torch.tensor(ids))[-1].argmax()))
        return ids


class Transformers:
    def __init__(self, name, words, dtype, is_stacked):
        self.is_stacked = is_stacked
        config = getattr(transformers, name + "Config")(**words)
        config._attn_implementation = "eager"
        self.model = getattr(transformers, name + "ForCausalLM")(config).to(dtype).eval()
        with torch.no_grad():
            for key, value in self.model.named_parameters():
                if "norm" in key or key.endswith("bias"):
                    value.add_(torch.randn_like(value) * 0.2)

    def save_pretrained(self, folder):
        self.model.save_pretrained(folder, save_original_format=not self.is_stacked)
        # Not .float(): the cast above rounded the rotary buffers too, which are not in the file.
        self.model = type(self.model).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()

    def logits(self, ids):
        return self.model(ids[None]).logits[0]

    def greedy(self, ids):
        return self.model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), max_new_tokens=NEW_TOKENS,
                                   min_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0)[0].tolist()


def of_halfbyte(program, folder, prompts, *words):
    lists = [word for prompt in prompts for word in ("--prompt-tokens", ",".join(map(str, prompt)))]
    out = subprocess.run([program, "generate", folder, *lists, "--dtype", "float32", "--temperature", "0", "--ignore-eos", "--max-gen-len",
                          str(NEW_TOKENS), "--echo", "--logprobs", "--json", *words], capture_output=True, text=True, check=False)
    if out.returncode != 0:
        raise RuntimeError(out.stderr.strip())
    results = json.loads(out.stdout)
    return results if isinstance(results, list) else results.get("generations", [results])


def check(program, model, folder, choose):
    model.save_pretrained(folder)
    prompt = [1] + [choose(range(3, VOCABULARY)) for _ in range(PROMPT - 1)]
    short = prompt[: SHORT_PROMPT]
    with torch.no_grad():
        wanted = torch.log_softmax(model.logits(torch.tensor(prompt)).float(), -1)
        greedy = [model.greedy(prompt), model.greedy(short)]
    results = of_halfbyte(program, folder, [prompt, short])
    got = torch.tensor(results[0]["logprobs"][1:PROMPT])
    scored = wanted[torch.arange(PROMPT - 1), torch.tensor(prompt[1:])]
    difference = float((got - scored).abs().max() / scored.abs().max())
    same = [result["tokens"] == tokens for result, tokens in zip(results, greedy)]
    alone = of_halfbyte(program, folder, [short])[0]["tokens"] == greedy[1]
    return difference, same + [alone]


def main():
    program = sys.argv[1]
    variants = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    torch.set_num_threads(1)
    bad = 0
    for family in FAMILIES:
        worst = 0.0
        for number in range(variants):
            rng = random.Random(f"{family.__name__} {seed} {number}")
            torch.manual_seed(rng.randrange(1 << 30))
            name, words = family(rng.choice)
            dtype = rng.choice([torch.float32, torch.bfloat16, torch.float16])
            with tempfile.TemporaryDirectory() as scratch:
                model = ChatGLM(words) if name == "ChatGLM" else Transformers(name, words, dtype, is_stacked=rng.choice([False, True]))
                try:
                    difference, same = check(program, model, pathlib.Path(scratch) / "model", rng.choice)
                except RuntimeError as error:
                    difference, same = float("inf"), [str(error)]
            worst = max(worst, difference)
            if not difference <= BOUND or same != [True] * 3:
                bad += 1
                print(f"  {family.__name__} {seed} {number}: difference {difference:.2g}, greedy {same}\n    {words}")
        print(f"{family.__name__:10} {variants} variants, largest difference {worst:.2g}")
    print("all agree" if bad == 0 else f"{bad} do not agree")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
