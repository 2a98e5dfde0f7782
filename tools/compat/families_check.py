#!/usr/bin/env python3
"""Makes random models of every family with transformers, and compares what halfbyte computes with what transformers does.

    families_check.py HALFBYTE [VARIANTS [SEED [FAMILY...]]]    exit status 0: agrees, 1: does not, 77: transformers is not installed

Each variant has sizes, head counts, biases, ties, rope scalings, windows and dtypes drawn at random. In float32, every
log-probability of a 48-token prompt, longer than most windows and chunks, must agree within 1e-4, and 24 greedy tokens, which go through the
key-value cache and across the borders of the others, must be equal wherever the reference's best is ahead of its second by more than 1e-4: alone,
and two prompts of different lengths in one batch. Where random weights make so much of rounding that transformers in float32 is further than a quarter
of that from itself in float64, before halfbyte is asked, other, smaller weights and another prompt are drawn for the same settings (how often is printed). That experts are chosen as transformers chooses them is told from log-probabilities too: those of the
tokens whose choice is nearest to another are computed with that other, which must change them by more than they differ. ChatGLM, which transformers has not, is compared with a reference of its own below.
"""
import copy
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import packages
from families_drawn import FAMILIES, VOCABULARY

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    packages.skip(error)

PROMPT, SHORT_PROMPT, NEW_TOKENS = 48, 19, 24
BOUND = 1e-4  # of log-probabilities, and of what is a tie
DRAWS, SMALLER = 16, 0.85  # of weights for the same settings, at most, and by how much each is smaller than the one before


class ChatGLM:
    """Just enough of ChatGLM2/3: fused projections, neighbours turned in the first half of each head."""

    def __init__(self, words, scale):
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
        self.state = {name: torch.randn(shape) * (0.15 * scale if len(shape) == 2 else 0.3) + (1.0 if "norm" in name else 0.0)
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

    def to_float64(self):
        self.state = {name: tensor.double() for name, tensor in self.state.items()}

    def greedy(self, ids):
        ids = list(ids)
        for _ in range(NEW_TOKENS):
            ids.append(int(self.logits(torch.tensor(ids))[-1].argmax()))
        return ids


CONFIGS = {"Gemma3": "Gemma3Text", "Qwen3_5": "Qwen3_5Text", "Qwen3_5Moe": "Qwen3_5MoeText", "Llama4": "Llama4Text",
           "Gemma4": "Gemma4Text"}  # named otherwise than their class


class Transformers:
    def __init__(self, name, words, dtype, is_stacked, scale):
        self.is_stacked = is_stacked
        config = getattr(transformers, CONFIGS.get(name, name) + "Config")(**words)
        config._attn_implementation = "eager"
        self.model = getattr(transformers, name + "ForCausalLM")(config).to(dtype).eval()
        with torch.no_grad():
            for key, value in self.model.named_parameters():
                if value.dim() > 1:
                    value.mul_(scale)
                if "norm" in key or key.endswith("bias"):
                    value.add_(torch.randn_like(value) * 0.2)
            for key, value in self.model.named_buffers():
                if key.endswith("correction_bias"):
                    value.add_(torch.randn_like(value) * 0.2)

    def save_pretrained(self, folder):
        self.model.save_pretrained(folder, save_original_format=not self.is_stacked)
        # Not .float(): the cast above rounded the rotary buffers too, which are not in the file.
        self.model = type(self.model).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()

    def to_float64(self):
        self.model = self.model.double()

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


def is_greedy(model, wanted, found):
    """"same", "tie" where the first token that differs is one that the reference hardly prefers, or what differs."""
    at = next((i for i, (a, b) in enumerate(zip(wanted, found)) if a != b), None)
    if at is None:
        return "same" if len(wanted) == len(found) else f"{len(found)} tokens instead of {len(wanted)}"
    with torch.no_grad():
        scores = torch.log_softmax(model.logits(torch.tensor(wanted[:at]))[-1].float(), -1)
    ahead = float(scores[wanted[at]] - scores[found[at]])
    return "tie" if ahead <= BOUND else f"token {at} is {found[at]}, not {wanted[at]}, which is {ahead:.2g} ahead"


def own_errors(model, prompt, wanted):
    """How far each of the reference's log-probabilities is from what it computes in float64."""
    exact_model = copy.deepcopy(model)
    exact_model.to_float64()
    with torch.no_grad():
        exact = torch.log_softmax(exact_model.logits(torch.tensor(prompt)).double(), -1)
    return (exact - wanted).abs()


def of_next(log_probabilities, prompt):
    """Of every token of the prompt but the first, its own."""
    return log_probabilities[torch.arange(PROMPT - 1), torch.tensor(prompt[1:])]


class Routers:
    """While it lasts, sees which experts transformers' routers choose, and takes the next best instead of the last one for one token of one router."""

    def __init__(self, experts, chosen, flipped=(None, None)):
        self.experts, self.chosen, self.flipped = experts, chosen, flipped
        self.margins = []  # of each router: of each token, by how much the last chosen is ahead of the next

    def __enter__(self):
        self.function, self.method = torch.topk, torch.Tensor.topk
        torch.topk = torch.Tensor.topk = lambda scores, *args, **words: self.topk(scores, *args, **words)
        return self

    def __exit__(self, *_):
        torch.topk, torch.Tensor.topk = self.function, self.method

    def topk(self, scores, k, dim=-1, **words):
        if scores.dim() != 2 or scores.shape[1] != self.experts or k != self.chosen or k == self.experts:
            return self.function(scores, k, dim=dim, **words)
        values, indices = self.function(scores, k + 1, dim=dim)
        router, token = self.flipped
        kept = list(range(k))
        out = [values[:, kept].clone(), indices[:, kept].clone()]
        if router == len(self.margins):
            out[0][token, -1], out[1][token, -1] = values[token, k], indices[token, k]
        self.margins.append(values[:, k - 1] - values[:, k])
        return torch.return_types.topk(out)


NEAREST = 6  # tokens of each router


def unseen_choices(model, words, prompt, wanted, bound):
    """(choices among experts that were tried otherwise, those of them that log-probabilities within the bound do not tell from the right ones)

    Tried are those that are nearest to another, but no ties: where the next best expert changes log-probabilities by more than they differ, halfbyte
    has chosen as transformers does."""
    experts = words.get("num_local_experts") or words.get("num_experts") or words.get("n_routed_experts")
    chosen = words.get("num_experts_per_tok") or words.get("top_k_experts")
    if not experts or not chosen or chosen >= experts:
        return 0, 0
    with torch.no_grad(), Routers(experts, chosen) as routers:
        model.logits(torch.tensor(prompt))
    tried, unseen = 0, 0
    for router, margins in enumerate(routers.margins):
        near = [int(token) for token in margins[: PROMPT - 1].argsort() if margins[token] > BOUND][:NEAREST]
        for token in near:
            with torch.no_grad(), Routers(experts, chosen, (router, token)):
                other = torch.log_softmax(model.logits(torch.tensor(prompt)).float(), -1)
            tried += 1
            unseen += bool(of_next(other - wanted, prompt).abs().max() <= 1.5 * bound)
    return tried, unseen


def check(program, model, words, folder, prompt, wanted):
    """(differences, how each sequence ends, choices among experts tried, those unseen)"""
    short = prompt[: SHORT_PROMPT]
    with torch.no_grad():
        greedy = [model.greedy(prompt), model.greedy(short)]
    results = of_halfbyte(program, folder, [prompt, short])
    got = torch.tensor(results[0]["logprobs"][1:PROMPT])
    differences = (got - of_next(wanted, prompt)).abs()
    found = [results[0]["tokens"], results[1]["tokens"], of_halfbyte(program, folder, [short])[0]["tokens"]]
    endings = [is_greedy(model, *pair) for pair in zip([*greedy, greedy[1]], found)]
    return differences.tolist(), endings, *unseen_choices(model, words, prompt, wanted, float(differences.max()))


def drawn(family, seed, number, scratch):
    """(the variant's model, its settings, the folder that it is saved in, its prompt, the prompt's log-probabilities, how often its weights were drawn)"""
    rng = random.Random(f"{family.__name__} {seed} {number}")
    weights = rng.randrange(1 << 30)
    name, words = family(rng.choice)
    dtype = rng.choice([torch.float32, torch.bfloat16, torch.float16])
    is_stacked = rng.choice([False, True])
    for draw in range(DRAWS):
        torch.manual_seed(weights + draw)
        scale = SMALLER**draw
        model = ChatGLM(words, scale) if name == "ChatGLM" else Transformers(name, copy.deepcopy(words), dtype, is_stacked, scale)
        folder = scratch / f"model{draw}"
        model.save_pretrained(folder)
        prompt = [1] + [rng.choice(range(3, VOCABULARY)) for _ in range(PROMPT - 1)]
        with torch.no_grad():
            wanted = torch.log_softmax(model.logits(torch.tensor(prompt)).float(), -1)
        if of_next(own_errors(model, prompt, wanted), prompt).max() <= BOUND / 4:
            return model, words, folder, prompt, wanted, draw
    raise RuntimeError(f"of {DRAWS} draws of weights none can be told from its own rounding")


def check_family(program, family, variants, seed):
    """(variants that do not agree, the sequences that parted at a tie, draws of weights left out for their rounding, choices of experts tried, unseen)"""
    bad, ties, left_out, tried, unseen, all_differences = 0, 0, 0, 0, 0, []
    for number in range(variants):
        words = None
        with tempfile.TemporaryDirectory() as scratch:
            try:
                model, words, folder, prompt, wanted, draws = drawn(family, seed, number, pathlib.Path(scratch))
                differences, tokens, *choices = check(program, model, words, folder, prompt, wanted)
            except RuntimeError as error:
                differences, tokens, draws, choices = [float("inf")], [str(error)], 0, (0, 0)
        tried, unseen, left_out = tried + choices[0], unseen + choices[1], left_out + draws
        all_differences += differences
        ties += tokens.count("tie")
        if not max(differences) <= BOUND or not set(tokens) <= {"same", "tie"}:
            bad += 1
            print(f"  {family.__name__} {seed} {number}: difference {max(differences):.2g}, greedy {tokens}\n    {words}")
    print(f"{family.__name__:14} {variants} variants, log-probabilities within {max(all_differences):.2g}, median {statistics.median(all_differences):.2g}, "
          f"{ties} ties, {left_out} draws of weights left out" + (f"; {tried - unseen} of {tried} experts told from the next best" if tried else ""),
          flush=True)
    return bad, ties, left_out, tried, unseen


def main():
    program = sys.argv[1]
    variants = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    torch.set_num_threads(1)
    unknown = set(sys.argv[4:]) - {family.__name__ for family in FAMILIES}
    if unknown or variants < 1:
        print(f"no such families: {', '.join(sorted(unknown))}" if unknown else "no variants")
        return 1
    results = [check_family(program, family, variants, seed) for family in FAMILIES if not sys.argv[4:] or family.__name__ in sys.argv[4:]]
    bad, ties, left_out, tried, unseen = (sum(column) for column in zip(*results))
    print(f"{'all agree' if bad == 0 else f'{bad} do not agree'}; {ties} of {3 * variants * len(results)} sequences parted at a tie, "
          f"{left_out} draws of weights for {variants * len(results)} models left out for their own rounding; {tried - unseen} of {tried} chosen experts told from the next best")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
