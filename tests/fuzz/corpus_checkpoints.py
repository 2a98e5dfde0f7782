"""Seeds of the fuzzers that open checkpoints: a small one of every format and method."""
import json
import struct

from corpus_formats import (BOOL, F32, I32, TEXT, U8, U32, bundle, gguf, p_dict, p_global, p_int, p_tensor, p_text, p_ints,
                            pickle, sentencepiece, tensors, torch_members, zip_file)

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 64, "vocab_size": 16,
         "max_position_embeddings": 64, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
LAYER = "model.layers.0."
LLAMA_SHAPES = {"model.embed_tokens.weight": [16, 32], LAYER + "input_layernorm.weight": [32],
                LAYER + "self_attn.q_proj.weight": [32, 32], LAYER + "self_attn.k_proj.weight": [16, 32],
                LAYER + "self_attn.v_proj.weight": [16, 32], LAYER + "self_attn.o_proj.weight": [32, 32],
                LAYER + "post_attention_layernorm.weight": [32], LAYER + "mlp.gate_proj.weight": [64, 32],
                LAYER + "mlp.up_proj.weight": [64, 32], LAYER + "mlp.down_proj.weight": [32, 64], "model.norm.weight": [32],
                "lm_head.weight": [16, 32]}
FILE = "model.safetensors.tensors"


def llama(dtype="BF16", change=lambda shapes: shapes):
    return {name: [dtype, shape] for name, shape in change(dict(LLAMA_SHAPES)).items()}


def other(quantization, **more):
    return {"model_type": "foo", "quantization_config": quantization, **more}


def checkpoint(config, header, **more):
    return bundle({"config.json": config, FILE: tensors(header), **{name.replace("__", "."): text for name, text in more.items()}})


def plain(files):
    """Checkpoints that are not packed: the sources of conversions."""
    yield from files
    yield bundle({"config.json": LLAMA, FILE: tensors(llama())})
    yield bundle({"config.json": {**LLAMA, "tie_word_embeddings": True, "torch_dtype": "float16"},
                  FILE: tensors(llama("F16"), bytes(range(1, 60)))})
    yield bundle({"config.json": {**LLAMA, "torch_dtype": "float32"}, FILE: tensors(llama("F32"), struct.pack("<6f", 1, -2, 0.5, 1e-3, 0, 7))})
    for values in ([65504, -65504], [1e30, -1], [0.0, -0.0], [1e-40, 3e-41], [3.4e38, 1]):
        yield bundle({FILE: tensors({"a.weight": ["F32", [8, 64]], "b.weight": ["BF16", [4, 32]], "c.weight": ["F16", [4, 48]],
                                     "n.bias": ["F64", [3]], "i": ["I32", [2]]}, struct.pack(f"<{len(values)}f", *values))})
    yield bundle({"config.json": {"model_type": "foo"}, "model-00001-of-00002.safetensors.tensors": tensors({"a.weight": ["F16", [4, 32]]}),
                  "model-00002-of-00002.safetensors.tensors": tensors({"b.weight": ["F16", [4, 32]]}),
                  "model.safetensors.index.json": {"metadata": {"total_size": 512}, "weight_map": {
                      "a.weight": "model-00001-of-00002.safetensors", "b.weight": "model-00002-of-00002.safetensors"}}})


def gptq_header(rows=16, columns=8, bits=4, groups=2, name="a", prefix=""):
    per_word = 32 // bits
    return {prefix + name + ".qweight": ["I32", [rows // per_word, columns]], prefix + name + ".qzeros": ["I32", [groups, columns // per_word]],
            prefix + name + ".scales": ["F16", [groups, columns], [1, 0.5, 2, -1] * (groups * columns // 4)],
            prefix + name + ".g_idx": ["I32", [rows], [i * groups // rows for i in range(rows)]], prefix + name + ".bias": ["F16", [columns], [1]],
            "n.weight": ["F16", [8]]}


def gptq():
    base = {"quant_method": "gptq", "bits": 4, "group_size": 8, "desc_act": False, "sym": False, "lm_head": False, "checkpoint_format": "gptq"}
    header = gptq_header()
    yield checkpoint(other(base), header)
    yield checkpoint(other({**base, "checkpoint_format": "gptq_v2", "sym": True}), {**header, "a.qzeros": ["I32", [2, 1], [0x77777777, 0x77777777]]})
    order = [i % 2 for i in range(16)]
    yield checkpoint(other({**base, "desc_act": True}), {**header, "a.g_idx": ["I32", [16], order]})
    yield checkpoint(other({**base, "bits": 8, "group_size": -1}), gptq_header(bits=8, groups=1))
    no_order = {name: value for name, value in header.items() if name != "a.g_idx"}
    yield checkpoint(other({**base, "dynamic": {"-:lm": {}, "+:a": {"bits": 8, "group_size": 16}}, "sym": True}), no_order)
    yield checkpoint(other({**base, "desc_act": True, "group_size": 16, "true_sequential": False, "damp_percent": 0.01}),
                     {**gptq_header(32, 8, 4, 2), "a.g_idx": ["I32", [32], [i % 2 for i in range(32)]]})
    for method, format_key, formats in (("auto-round", "packing_format", ("auto_round:auto_gptq", "auto_round")),
                                        ("intel/auto-round", "backend", ("auto", "auto_round:gptqmodel"))):
        for name in formats:
            yield checkpoint(other({"quant_method": method, "bits": 4, "group_size": 8, "sym": True, "data_type": "int", format_key: name,
                                    "extra_config": {"b": {"bits": 8, "group_size": 16}, "c": {"bits": 16}}}), header)
    yield bundle({"config.json": {"model_type": "foo"}, "quantize_config.json": {**base, "method": "gptq"}, FILE: tensors(header)})
    yield bundle({"config.json": {"model_type": "foo"}, FILE: tensors(header)})
    fused = {**LLAMA, "quantization_config": {**base, "group_size": 16}}
    whole = llama("F16", lambda s: {k: v for k, v in s.items() if "q_proj" not in k})
    yield checkpoint(fused, {**whole, **gptq_header(32, 32, 4, 2, "q_proj", LAYER + "self_attn.")})


def awq():
    base = {"quant_method": "awq", "bits": 4, "group_size": 8, "zero_point": True, "version": "gemm", "modules_to_not_convert": ["lm_head"]}
    header = {"a.qweight": ["I32", [16, 2]], "a.qzeros": ["I32", [2, 2]], "a.scales": ["F16", [2, 16], [1, 0.5] * 16], "n.weight": ["F16", [8]]}
    yield checkpoint(other(base), header)
    yield checkpoint(other({**base, "group_size": -1, "zero_point": False}), {"a.qweight": ["I32", [16, 2]], "a.scales": ["F16", [1, 16]]})
    yield bundle({"config.json": {"model_type": "foo"}, "quant_config.json": {"w_bit": 4, "q_group_size": 8, "zero_point": True, "version": "GEMM"},
                  FILE: tensors(header)})
    yield checkpoint(other({"quant_method": "auto-round", "bits": 4, "group_size": 8, "sym": False, "packing_format": "auto_round:auto_awq"}), header)
    yield checkpoint(other({**base, "bits": 8}), header)


def hqq_header(packing, count, axis=1, columns=4, dtype="U8", words=None, **more):
    return {"a.W_q": [dtype, [words or count]], "a.scale": ["F16", [2, 1], [2, 0.5]], "a.zero": ["F16", [2, 1], [1.5, 0.25]],
            "a.packing": ["U8", [len(packing)], packing], "a.axis": ["I32", [], [axis]], "a.group_size": ["I32", [], [8]],
            "a.shape": ["I64", [2], [4, columns]], "a.quant_zero": ["U8", [], [0]], "a.quant_scale": ["U8", [], [0]],
            "a.compute_dtype": ["U8", [13], "torch.float16"], "a.bias": ["F16", [4]], **more}


def hqq():
    config = other({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4}}})
    for packing, counts, dtype in (("4bit_u8", (8, 8), "U8"), ("8bit_u8", (16, 16), "U8"), ("2bit_u8", (4, 8), "U8"), ("1bit_u8", (2, 8), "U8"), ("3bit_32", (2, 8), "I32")):
        for axis in (0, 1):
            yield checkpoint(config, hqq_header(packing, counts[axis], axis, dtype=dtype))
    yield checkpoint({"model_type": "foo"}, hqq_header("4bit_u8", 8))
    yield checkpoint(config, hqq_header("4bit_u8", 8, **{"a.scale": ["F32", [1], [2]], "a.zero": ["BF16", [1], [1]], "a.group_size": ["I32", [], [16]]}))
    yield checkpoint(config, hqq_header("4bit_u8", 8, **{"a.quant_zero": ["U8", [], [1]]}))


def compressed(**weights):
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed", "kv_cache_scheme": None,
            "sparsity_config": {}, "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, "weights": {
                "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 16, "dynamic": False, **weights}}}}


def compressed_tensors():
    header = {"a.weight_packed": ["I32", [2, 4]], "a.weight_scale": ["BF16", [2, 2], [1, 0.5, 2, -1]], "a.weight_shape": ["I64", [2], [2, 32]],
              "n.weight": ["F32", [3], [1, 2, 3]]}
    eight = {"a.weight_packed": ["I32", [8, 1]], "a.weight_scale": ["F16", [8, 2], [1] * 16], "a.weight_shape": ["I64", [2], [8, 4]]}
    yield checkpoint(other(compressed()), header)
    yield checkpoint(other(compressed(actorder="group")), {**header, "a.weight_g_idx": ["I32", [32], [i % 2 for i in range(32)]]})
    yield checkpoint(other(compressed(actorder="weight")), {**header, "a.weight_g_idx": ["I32", [32], [-1] * 32]})
    yield checkpoint(other(compressed(symmetric=False)), {**header, "a.weight_packed": ["I32", [8, 4]], "a.weight_shape": ["I64", [2], [8, 32]],
                                                          "a.weight_scale": ["BF16", [8, 2], [1] * 16], "a.weight_zero_point": ["I32", [1, 2]]})
    yield checkpoint(other(compressed(num_bits=8, symmetric=False, group_size=2)), {**eight, "a.weight_zero_point": ["I32", [2, 2]]})
    yield checkpoint(other(compressed(num_bits=8, group_size=2)), eight)
    yield checkpoint(other(compressed(strategy="channel", group_size=None)), {**header, "a.weight_scale": ["F32", [2, 1], [1, 2]]})
    yield checkpoint(other(compressed(num_bits=8, strategy="channel")), {**eight, "a.weight_scale": ["F32", [8, 1]]})
    old = {"compression_config": compressed(), "model_type": "foo"}
    yield checkpoint(old, header)
    ints = {**compressed(num_bits=8, strategy="channel"), "format": "int-quantized"}
    yield checkpoint(other(ints), {"a.weight": ["I8", [4, 8]], "a.weight_scale": ["BF16", [4, 1], [1, 2, 1, 2]]})
    yield checkpoint(other(compressed(strategy="tensor")), header)
    whole = llama("BF16", lambda s: {k: v for k, v in s.items() if "q_proj" not in k})
    name = LAYER + "self_attn.q_proj.weight"
    yield checkpoint({**LLAMA, "quantization_config": compressed()}, {**whole, name + "_packed": ["I32", [32, 4]], name + "_scale": ["BF16", [32, 2]],
                                                                      name + "_shape": ["I64", [2], [32, 32]]})


NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
       0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
FP4 = [0.0, 0.0052083334885537624, 0.6666666865348816, 1.0, 0.3333333432674408, 0.5, 0.1666666716337204, 0.25]
FP4 = FP4 + [-value for value in FP4]


def bitsandbytes_header(kind="nf4", storage="U8", block=32, nested=None, rows=2, name="a.weight"):
    width = {"U8": 1, "BF16": 2, "F32": 4}[storage]
    state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": [rows, 64]}
    count = rows * 64 // block
    out = {name: [storage, [rows * 32 // width, 1]], name + ".quant_map": ["F32", [16], NF4 if kind == "nf4" else FP4],
           name + ".absmax": ["F32", [count], [1, 0.5, 0.25, 2] * (count // 4 + 1)]}
    if nested:
        state.update(nested_blocksize=nested, nested_dtype="float32", nested_offset=0.3)
        out[name + ".absmax"] = ["U8", [count]]
        out[name + ".nested_absmax"] = ["F32", [(count + nested - 1) // nested], [0.5] * count]
        out[name + ".nested_quant_map"] = ["F32", [256], [i / 300 for i in range(256)]]
    text = json.dumps(state)
    out[name + ".quant_state.bitsandbytes__" + kind] = ["U8", [len(text)], text]
    return out


def bitsandbytes():
    config = other({"quant_method": "bitsandbytes", "load_in_4bit": True, "_load_in_8bit": False, "load_in_8bit": False})
    yield checkpoint(config, bitsandbytes_header())
    yield checkpoint(config, bitsandbytes_header("fp4", "BF16", 64))
    yield checkpoint(config, bitsandbytes_header(nested=256, storage="F32"))
    yield checkpoint(config, bitsandbytes_header(nested=2, rows=4))
    yield checkpoint(other({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}), bitsandbytes_header())
    yield checkpoint({"model_type": "foo"}, bitsandbytes_header(block=64))
    whole = llama("BF16", lambda s: {k: v for k, v in s.items() if "gate_proj" not in k})
    yield checkpoint({**LLAMA, "hidden_size": 64, "intermediate_size": 2}, {**whole, **bitsandbytes_header(name=LAYER + "mlp.gate_proj.weight")})
    yield checkpoint(other({"quant_method": "bitsandbytes", "load_in_8bit": True}), {"a.weight": ["I8", [4, 8]], "a.SCB": ["F32", [4]], "a.weight_format": ["U8", []]})


def float4():
    for blocks, scales, config in (("_blocks", "_scales", other({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})), (".blocks", ".scales", {"model_type": "foo"})):
        yield checkpoint(config, {"e.gate_up_proj" + blocks: ["U8", [2, 3, 2, 16]], "e.gate_up_proj" + scales: ["U8", [2, 3, 2], [120, 121, 127]],
                                  "e.gate_up_proj_bias": ["BF16", [2, 3]]})
        yield checkpoint(config, {"a" + blocks: ["U8", [1, 4, 16]], "a" + scales: ["U8", [1, 4], [0, 1, 254, 255]]})
    for kind, scale, more in (("nvfp4-pack-quantized", "F8_E4M3", {"a.weight_global_scale": ["F32", [1], [0.3]], "a.input_global_scale": ["F32", [1], [7]]}),
                              ("mxfp4-pack-quantized", "U8", {})):
        method = {"quant_method": "compressed-tensors", "format": kind, "quantization_status": "compressed", "config_groups": {"group_0": {"format": kind}}}
        columns = 24 if more else 16
        header = {"a.weight_packed": ["U8", [3, columns]], "a.weight_scale": [scale, [3, 3 if more else 1], [56, 57, 60] * 3], "n.weight": ["BF16", [5]], **more}
        yield checkpoint(other(method), header)
        yield checkpoint(other({**method, "format": "mixed-precision"}), header)
    modelopt = {"a.weight": ["U8", [3, 24]], "a.weight_scale": ["F8_E4M3", [3, 3], [56, 57, 60] * 3], "a.weight_scale_2": ["F32", [], [0.3]],
                "a.input_scale": ["F32", [], [7]], "a.k_scale": ["F32", [], [7]], "n.weight": ["BF16", [5]]}
    yield checkpoint(other({"quant_method": "modelopt", "quant_algo": "NVFP4"}), modelopt)
    yield bundle({"config.json": {"model_type": "foo"}, "hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}},
                  FILE: tensors(modelopt)})


def ipex_llm():
    config = {**LLAMA, "hidden_size": 64, "intermediate_size": 128, "head_dim": 32, "torch_dtype": "float32"}
    sizes = {"model.embed_tokens.weight": [16, 64], LAYER + "self_attn.q_proj.weight": [64, 64], LAYER + "self_attn.k_proj.weight": [32, 64],
             LAYER + "self_attn.v_proj.weight": [32, 64], LAYER + "self_attn.o_proj.weight": [64, 64], LAYER + "mlp.gate_proj.weight": [128, 64],
             LAYER + "mlp.up_proj.weight": [128, 64], LAYER + "mlp.down_proj.weight": [64, 128], "lm_head.weight": [16, 64]}
    norms = {LAYER + "input_layernorm.weight": ["F32", [64]], LAYER + "post_attention_layernorm.weight": ["F32", [64]], "model.norm.weight": ["F32", [64]]}
    for kind, block in (("sym_int4", 34), ("asym_int4", 36), ("nf4", 34), ("fp4", 34), ("sym_int8", 68)):
        for merged in (False, True):
            packed = {name: ["U8", [rows * columns // 64 * block]] for name, (rows, columns) in sizes.items()}
            packed["model.embed_tokens.weight"] = ["F32", [16, 64]] if kind != "asym_int4" else packed["model.embed_tokens.weight"]
            if merged:
                for part in ("q", "k", "v"):
                    packed.pop(LAYER + f"self_attn.{part}_proj.weight")
                packed[LAYER + "self_attn.qkv_proj.weight"] = ["U8", [128 * block]]
            yield bundle({"config.json": {**config, "bigdl_transformers_low_bit": kind}, "load_keys.json": "{}",
                          "pytorch_model.bin.tensors": tensors({**packed, **norms}, b"\x12\x34\x21")})
    yield bundle({"config.json": {**config}, "bigdl_config.json": {"bigdl_transformers_low_bit": "sym_int4"}, "load_keys.json": "{}",
                  "pytorch_model.bin.tensors": tensors({**norms})})
    yield bundle({"config.json": {"model_type": "foo", "bigdl_transformers_low_bit": "q4_k_m"}, "pytorch_model.bin.tensors": tensors(norms)})


META = {"embed_tokens": "tok_embeddings", "q_proj": "attention.wq", "k_proj": "attention.wk", "v_proj": "attention.wv", "o_proj": "attention.wo",
        "gate_proj": "feed_forward.w1", "down_proj": "feed_forward.w2", "up_proj": "feed_forward.w3", "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm", "norm": "norm", "lm_head": "output"}
PARAMS = {"dim": 32, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "multiple_of": 32, "norm_eps": 1e-5, "vocab_size": -1}


def meta_header(shards, has_column_embedding=False):
    out = {"rope.freqs": ["BF16", [8]]}
    for name, shape in LLAMA_SHAPES.items():
        module = name.split(".")[-2]
        shape = list(shape)
        if len(shape) == 2:
            by_columns = module in ("o_proj", "down_proj") or (has_column_embedding and module == "embed_tokens")
            shape[int(by_columns)] //= shards
        out[("layers.0." if ".layers." in name else "") + META[module] + ".weight"] = ["BF16", shape]
    return out


def meta():
    for shards, columns in ((1, False), (2, False), (2, True)):
        files = {f"consolidated.0{i}.pth.tensors": tensors(meta_header(shards, columns)) for i in range(shards)}
        yield bundle({"params.json": PARAMS, **files})
    yield bundle({"params.json": {**PARAMS, "use_scaled_rope": True, "rope_theta": 500000.0}, "consolidated.00.pth.tensors": tensors(meta_header(1)),
                  "tokenizer.model": "x"})


def meta_params():
    yield json.dumps(PARAMS).encode()
    yield json.dumps({**PARAMS, "use_scaled_rope": True, "rope_theta": 500000.0, "rope_scaling_factor": 8, "ffn_dim_multiplier": 1.3}).encode()
    yield json.dumps({"dim": 4096, "n_layers": 32, "n_heads": 32, "norm_eps": 1e-6, "rope_theta": 1000000, "vocab_size": 32000}).encode()
    yield json.dumps({**PARAMS, "moe": {"num_experts": 8}}).encode()
    yield json.dumps({**PARAMS, "use_scaled_rope": True, "dim": 3072, "n_heads": 24, "lora_args": False}).encode()


def state_dict():
    return p_dict({"a.weight": p_tensor("0", 64, 0, [8, 8], [8, 1]), "b.weight": p_tensor("0", 64, 8, [8, 4], [1, 8], "BFloat16Storage"),
                   "version": p_int(3), "h": p_tensor("1", 16, 0, [4], [0], "HalfStorage")})


def pickles():
    yield pickle(state_dict())
    yield pickle(state_dict(), 4)
    yield pickle(p_dict({"state_dict": state_dict(), "epoch": p_int(7), "lr": b"G" + b"\0" * 8}))
    yield pickle(p_dict({"model": state_dict(), "other": state_dict()}))
    third = p_tensor("0", 64, 0, [8], [1], "UntypedStorage", "_rebuild_tensor_v3", p_global("torch", "float8_e4m3fn"))
    yield pickle(p_dict({"f": third, "p": p_global("torch._utils", "_rebuild_parameter") + b"(" + p_tensor("0", 9, 0, [3, 3], [3, 1]) +
                         b"\x88" + p_global("collections", "OrderedDict") + b")RtR"}))
    pairs = b"](" + p_text("k") + p_int(1) + b"\x86" + p_text("l") + b"N\x86e"
    yield pickle(p_global("collections", "OrderedDict") + pairs + b"\x85R}" + p_text("_metadata") + b"}sb")
    yield pickle(b"}q\0h\0(K\x01M\x02\x03J\x04\0\0\0U\x02ab]q\x01(K\x02ee0" + p_text("a") + b"K\x01s") + b"rest"
    yield pickle(b"\x95\x20\0\0\0\0\0\0\0}\x94\x8c\x01a\x8c\x05torch\x8c\x04Size\x93(K\x01K\x02t\x85R\x94sh\0h\0\x87.", 4)
    yield pickle(b"(K\x01K\x02d(K\x01l(K\x01\x8d\x01\0\0\0\0\0\0\0at}K\x01\x85K\x01K\x02\x86C\x01a\x8e\x01\0\0\0\0\0\0\0bB\x01\0\0\0cI1\n2l", 5)
    yield pickle(b"cos\nsystem\n(X\x04\0\0\0true" + b"tR")


def pytorch():
    yield bundle({"pytorch_model.bin.tensors": tensors(llama("BF16")), "config.json": LLAMA})
    yield bundle({"pytorch_model-00001-of-00002.bin.tensors": tensors({"a.weight": ["F32", [4, 8]]}),
                  "pytorch_model-00002-of-00002.bin.tensors": tensors({"b.weight": ["U8", [4, 8]]}), "config.json": {"model_type": "foo"},
                  "pytorch_model.bin.index.json": {"weight_map": {"a.weight": "pytorch_model-00001-of-00002.bin", "b.weight": "pytorch_model-00002-of-00002.bin"}}})
    for one in pickles():
        yield bundle({"m.pt": zip_file(torch_members(one, {"0": b"\x12\x34\x21\x3c" * 64, "1": b"\1\2" * 16}))})
    yield bundle({"pytorch_model.bin": b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."})


def zips():
    for one in pickles():
        yield zip_file(torch_members(one, {"0": b"\x12\x34\x21\x3c" * 64, "1": b"\1\2" * 16}))
    members = torch_members(pickle(state_dict()), {"0": b"\x12\x34\x21\x3c" * 64, "1": b"\1\2" * 16})
    yield zip_file(members, is_zip64=True)
    yield zip_file(members, comment=b"made by hand")
    yield zip_file({**members, "m/byteorder": b"big"})
    yield zip_file({"a/data.pkl": b"", "b/data.pkl": b""})
    yield zip_file({"constants.pkl": b"", **members})
    yield b"PK\3\4"
    yield pickle(state_dict())


def llama2c_tokenizer():
    def entry(text, score=-1.0):
        data = text.encode()
        return struct.pack("<fi", score, len(data)) + data

    pieces = ["<unk>", "\n<s>\n", "\n</s>\n", "<0x0A>", " ", "a", "b", " a", "ab", "\u00e9"]
    for count in (10, 5):
        tokens = b"".join(entry(piece, -float(i)) for i, piece in enumerate(pieces[:count]))
        yield bytes([count]) + struct.pack("<i", 8) + tokens
        yield bytes([count + 1]) + struct.pack("<i", 8) + tokens
        yield bytes([count]) + struct.pack("<i", 8) + tokens[:-1]
    everything = pieces[:3] + [f"<0x{byte:02X}>" for byte in range(128)] + ["\u2581", "a", "\u2581a"]
    yield bytes([len(everything)]) + struct.pack("<i", 8) + b"".join(entry(piece) for piece in everything)


def llama2c():
    def sizes(dim=8, hidden=16, layers=1, heads=2, kv_heads=1, vocab=8, context=4):
        return dim, hidden, layers, heads, kv_heads, vocab, context

    def floats(dim, hidden, layers, heads, kv_heads, vocab, context, has_tables):
        kv = dim // heads * kv_heads
        count = abs(vocab) * dim + layers * (2 * dim + 2 * dim * dim + 2 * kv * dim + 3 * dim * hidden) + dim
        return count + (context * (dim // heads) if has_tables else 0) + (abs(vocab) * dim if vocab < 0 else 0)

    for vocab in (8, -8):
        s = sizes(vocab=vocab)
        length = 28 + 4 * floats(*s, True)
        yield struct.pack("<H", length) + struct.pack("<7i", *s) + struct.pack("<3f", 0.5, -1, 2)
    for shared in (1, 0):
        s = sizes()
        length = 256 + 4 * (floats(*s, False) + (0 if shared else 64))
        yield struct.pack("<H", length) + struct.pack("<II7iB", 0x616B3432, 1, *s, shared) + b"\0" * 219 + struct.pack("<3f", 0.5, -1, 2)
        weights = floats(*s, False) - 3 * 8 + (0 if shared else 64)
        length = 256 + 4 * 3 * 8 + weights + weights // 8 * 4
        yield struct.pack("<H", length) + struct.pack("<II7iBi", 0x616B3432, 2, *s, shared, 8) + b"\0" * 215 + struct.pack("<3f", 0.5, -1, 2)


def gguf_base(architecture="llama", tokenizer=(), **more):
    prefix = architecture + "."
    entries = [("general.architecture", TEXT, architecture), (prefix + "embedding_length", U32, 32), (prefix + "block_count", U32, 1),
               (prefix + "feed_forward_length", U32, 64), (prefix + "context_length", U32, 128), (prefix + "attention.head_count", U32, 2),
               (prefix + "attention.head_count_kv", U32, 1), (prefix + "attention.layer_norm_rms_epsilon", F32, 1e-5)]
    return entries + [(prefix + key.replace("__", "."), *value) for key, value in more.items()] + list(tokenizer)


def gguf_table(kind=0, size=4):
    blk = "blk.0."
    rows = [("token_embd.weight", [32, 8]), (blk + "attn_norm.weight", [32]), (blk + "attn_q.weight", [32, 32]), (blk + "attn_k.weight", [32, 16]),
            (blk + "attn_v.weight", [32, 16]), (blk + "attn_output.weight", [32, 32]), (blk + "ffn_norm.weight", [32]), (blk + "ffn_gate.weight", [32, 64]),
            (blk + "ffn_up.weight", [32, 64]), (blk + "ffn_down.weight", [64, 32]), ("output_norm.weight", [32])]
    out = []
    for name, lengths in rows:
        own, width = (kind, size) if len(lengths) > 1 else (0, 4)
        count = 1
        for length in lengths:
            count *= length
        out.append((name, lengths, own, int(count * width)))
    return out


BPE = [("tokenizer.ggml.model", TEXT, "gpt2"), ("tokenizer.ggml.pre", TEXT, "llama-bpe"), ("tokenizer.ggml.tokens", TEXT, ["a", "b", "ab", "<s>", "</s>", "c", "abc", "<x>"]),
       ("tokenizer.ggml.token_type", I32, [1, 1, 1, 3, 3, 1, 1, 4]), ("tokenizer.ggml.merges", TEXT, ["a b", "ab c"]), ("tokenizer.ggml.bos_token_id", U32, 3),
       ("tokenizer.ggml.eos_token_id", U32, 4), ("tokenizer.ggml.add_bos_token", BOOL, True), ("tokenizer.chat_template", TEXT, "{{ '<|im_start|>' }}")]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPM = [("tokenizer.ggml.model", TEXT, "llama"), ("tokenizer.ggml.tokens", TEXT, ["<unk>", "<s>", "</s>", "▁a", "b", "▁ab", "c", *BYTES]),
       ("tokenizer.ggml.scores", F32, [0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0] + [0.0] * 256),
       ("tokenizer.ggml.token_type", I32, [2, 3, 3, 1, 1, 1, 4] + [6] * 256),
       ("tokenizer.ggml.add_space_prefix", BOOL, True), ("tokenizer.ggml.eos_token_id", U32, 2), ("tokenizer.ggml.eot_token_id", U32, 2)]


def ggufs():
    yield gguf(gguf_base(tokenizer=BPE), gguf_table())
    yield gguf(gguf_base(tokenizer=SPM, rope__freq_base=(F32, 5e5), rope__dimension_count=(U32, 16)), gguf_table(2, 18 / 32))
    for pre in ("qwen2", "starcoder", "gpt-4o", "tekken", "nothing"):
        yield gguf(gguf_base("qwen2", [entry if entry[0] != "tokenizer.ggml.pre" else (entry[0], TEXT, pre) for entry in BPE]), gguf_table(1, 2))
    for name in ("qwen3", "phi3", "gemma", "gemma2", "gemma3", "glm4", "chatglm", "olmo2", "exaone4", "cohere2", "granite", "mistral3", "seed_oss", "foo"):
        window = {"attention__sliding_window": (U32, 16), "attention__sliding_window_pattern": (BOOL, [True]), "attention__key_length": (U32, 16),
                  "attention__layer_norm_epsilon": (F32, 1e-5), "rope__dimension_count": (U32, 8), "logit_scale": (F32, 0.5)}
        yield gguf(gguf_base(name, BPE, **window), gguf_table(8, 34 / 32) + [("blk.0.attn_q_norm.weight", [16], 0, 64), ("output.weight", [32, 8], 30, 512)])
    experts = [("blk.0.ffn_gate_inp.weight", [32, 2], 0, 256), ("blk.0.ffn_gate_exps.weight", [32, 64, 2], 0, 16384), ("blk.0.ffn_down.1.weight", [64, 32], 2, 1152)]
    for name in ("llama", "qwen3moe", "glm4moe", "minimax-m2", "phimoe"):
        more = {"expert_shared_count": (U32, 1), "expert_gating_func": (U32, 2), "expert_weights_norm": (BOOL, True), "nextn_predict_layers": (U32, 0)}
        yield gguf(gguf_base(name, expert_count=(U32, 2), expert_used_count=(U32, 1), expert_feed_forward_length=(U32, 64), **more), gguf_table() + experts)
    for kind in ("linear", "yarn", "longrope", "llama3", "none"):
        rope = {"rope__scaling__type": (TEXT, kind), "rope__scaling__factor": (F32, 8.0), "rope__scaling__original_context_length": (U32, 64),
                "rope__scaling__yarn_log_multiplier": (F32, 0.1), "rope__scaling__attn_factor": (F32, 1.0)}
        factors = [("rope_factors_long.weight", [8], 0, 32), ("rope_factors_short.weight", [8], 0, 32)]
        values = struct.pack("<8f", *range(1, 9))
        yield gguf(gguf_base("llama", SPM, **rope), [("rope_freqs.weight", [8], 0, 32)] + gguf_table(), data=values)
        yield gguf(gguf_base("phi3", SPM, **rope), factors + gguf_table(), data=2 * values)
    types = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176),
             14: (256, 210), 20: (32, 18), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36)}
    for version in (2, 3):
        yield gguf([("general.alignment", U32, 64)] if version == 3 else [], [(f"t{kind}.weight", [256, 2], kind, 512 // values * size) for kind, (values, size) in types.items()],
                   64 if version == 3 else 32, version, b"\x01\x02\x30\x41" * 8)
    yield gguf([("a", U8, 1), ("b", U8, [1, 2]), ("split.count", U32, 2)], [])


def packed(manifest):
    """halfbyte's own checkpoints; the manifest of one is kept by the script that calls this."""
    header = {"a.weight_packed": ["I32", [2, 4]], "a.weight_scale": ["BF16", [2, 2], [1, 0.5, 2, -1]], "a.weight_shape": ["I64", [2], [2, 32]],
              "n.weight": ["F32", [3], [1, 2, 3]]}
    for one in manifest:
        yield bundle({"config.json": {"model_type": "foo"}, "halfbyte.json": one, FILE: tensors(header)})
    yield bundle({"config.json": {"model_type": "foo"}, FILE: tensors(header)})
