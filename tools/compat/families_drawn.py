"""config.json of every family, drawn at random: each function gives a class of transformers and its words."""

VOCABULARY = 97


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
        words["max_position_embeddings"] = 40
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


def headless(words):
    """For classes that have no head_dim."""
    words["hidden_size"] = words["num_attention_heads"] * words.pop("head_dim")
    return words


def olmo2(choose):
    return "Olmo2", headless(short_rope(choose, common(choose))) | {"attention_bias": choose([False, True])}


def seed_oss(choose):
    return "SeedOss", short_rope(choose, common(choose)) | {
        "attention_bias": choose([False, True]), "attention_out_bias": choose([False, True]), "mlp_bias": choose([False, True])}


def ernie4_5(choose):
    return "Ernie4_5", short_rope(choose, common(choose)) | {"use_bias": choose([False, True])}


def hunyuan(choose):
    words = short_rope(choose, common(choose)) | {"attention_bias": choose([False, True])}
    if words["rope_parameters"]["rope_type"] == "dynamic" and choose([False, True]):
        words["rope_parameters"]["alpha"] = 50.0
        words["max_position_embeddings"] = 128  # alpha stretches nothing beyond it
    return "HunYuanDenseV1", words


def granite(choose):
    return "Granite", headless(short_rope(choose, common(choose))) | {
        "attention_bias": choose([False, True]), "mlp_bias": choose([False, True]), "embedding_multiplier": choose([1.0, 12.0]),
        "attention_multiplier": choose([0.125, 0.3]), "residual_multiplier": choose([1.0, 0.22]), "logits_scaling": choose([1.0, 5.0])}


def smollm3(choose):
    words = headless(short_rope(choose, common(choose))) | {
        "num_hidden_layers": choose([2, 3]), "attention_bias": choose([False, True]), "mlp_bias": choose([False, True]),
        "use_sliding_window": choose([False, True]), "sliding_window": 9, "no_rope_layer_interval": choose([2, 3])}
    if choose([False, True]):
        words["no_rope_layers"] = [choose([0, 1]) for _ in range(words["num_hidden_layers"])]
    return "SmolLM3", words


def exaone4(choose):
    words = short_rope(choose, common(choose)) | {"num_hidden_layers": choose([2, 3]), "sliding_window": choose([None, 7, 64])}
    if words["sliding_window"] is None:
        words["layer_types"] = ["full_attention"] * words["num_hidden_layers"]
    elif choose([False, True]):
        words["layer_types"] = [choose(["full_attention", "sliding_attention"]) for _ in range(words["num_hidden_layers"])]
    else:
        words["sliding_window_pattern"] = choose([1, 2, 3])
    return "Exaone4", words


def by_kind(choose, words, kinds=None):
    words["rope_parameters"] = {
        "full_attention": rope(choose, words["head_dim"], kinds or ["default", "linear", "llama3", "yarn"]),
        "sliding_attention": {"rope_type": "default", "rope_theta": choose([10000.0, 500000.0])}}
    words["rope_parameters"]["full_attention"].pop("truncate", None)  # which transformers reads beside the kinds, where it is not
    return words


def olmo3(choose):
    words = headless(by_kind(choose, common(choose))) | {"num_hidden_layers": choose([2, 3, 4]), "sliding_window": choose([7, 64])}
    if choose([False, True]):
        words["layer_types"] = [choose(["full_attention", "sliding_attention"]) for _ in range(words["num_hidden_layers"])]
    return "Olmo3", words | {"attention_bias": choose([False, True])}


def cohere2(choose):
    words = headless(short_rope(choose, common(choose))) | {
        "num_hidden_layers": choose([2, 3, 4]), "sliding_window": choose([7, 64]), "attention_bias": choose([False, True]),
        "logit_scale": choose([0.0625, 0.25]), "layer_norm_eps": choose([1e-5, 1e-6])}
    if choose([False, True]):
        words["layer_types"] = [choose(["full_attention", "sliding_attention"]) for _ in range(words["num_hidden_layers"])]
    return "Cohere2", words


def minimax_m2(choose):
    return "MiniMaxM2", short_rope(choose, common(choose)) | {"num_local_experts": 6, "num_experts_per_tok": choose([1, 3])}


def phimoe(choose):
    return "Phimoe", headless(common(choose)) | {
        "num_local_experts": 5, "num_experts_per_tok": 2, "attention_bias": choose([False, True]), "lm_head_bias": choose([False, True]),
        "router_jitter_noise": choose([0.01, 0.2]), "tie_word_embeddings": False, "sliding_window": choose([None, 13])}


def glm4_moe(choose):
    words = common(choose)
    words["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": choose([0.5, 1.0])}
    groups = choose([1, 2, 4])
    return "Glm4Moe", words | {
        "num_hidden_layers": choose([2, 3]), "n_routed_experts": 8, "num_experts_per_tok": choose([1, 2]), "n_shared_experts": choose([1, 2]),
        "n_group": groups, "topk_group": min(groups, 2), "norm_topk_prob": choose([False, True]), "routed_scaling_factor": choose([1.0, 2.5]),
        "moe_intermediate_size": choose([32, 60]), "first_k_dense_replace": choose([0, 1]), "use_qk_norm": choose([False, True]),
        "attention_bias": choose([False, True])}


def ministral3(choose):
    words = common(choose) | {"sliding_window": choose([None, 13])}
    original = choose([8, 32])
    words["rope_parameters"] = {
        "rope_type": "yarn", "rope_theta": 1000000.0, "factor": choose([2.0, 16.0]), "original_max_position_embeddings": original,
        "max_position_embeddings": 128, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": choose([0.0, 1.0]),
        "llama_4_scaling_beta": choose([0.1, 0.5])}
    return "Ministral3", words


def gemma3(choose):
    words = by_kind(choose, common(choose)) | {
        "num_hidden_layers": choose([2, 3]), "tie_word_embeddings": choose([False, True]), "attention_bias": choose([False, True]),
        "sliding_window": choose([7, 64]), "sliding_window_pattern": choose([2, 3]), "query_pre_attn_scalar": choose([16, 144]),
        "final_logit_softcapping": choose([None, 3.0])}
    return "Gemma3", words | {"hidden_size": words["num_attention_heads"] * choose([8, 12, 20])}


def granitemoe(choose):
    words = granite(choose)[1]
    del words["mlp_bias"]
    return "GraniteMoe", words | {"num_local_experts": 5, "num_experts_per_tok": choose([1, 2, 5])}


def lfm2(choose):
    words = headless(common(choose)) | {"num_hidden_layers": choose([2, 3, 4]), "norm_eps": 1e-5, "conv_L_cache": choose([2, 3, 4]),
                                        "conv_bias": choose([False, True]), "block_multiple_of": choose([8, 32])}
    del words["rms_norm_eps"]
    kinds = [choose(["conv", "full_attention"]) for _ in range(words["num_hidden_layers"] - 1)]
    return "Lfm2", words | {"layer_types": kinds + ["full_attention"]}  # one at least, as below


def delta(choose):
    key_heads = choose([1, 2])
    words = common(choose) | {
        "num_hidden_layers": choose([2, 3, 4]), "linear_num_key_heads": key_heads, "linear_num_value_heads": key_heads * choose([1, 2, 3]),
        "linear_key_head_dim": choose([8, 12]), "linear_value_head_dim": choose([8, 20]), "linear_conv_kernel_dim": choose([2, 4]),
        "attention_bias": choose([False, True])}
    words["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": choose([0.5, 1.0])}
    # transformers asks for one layer of attention at least.
    kinds = [choose(["linear_attention", "full_attention"]) for _ in range(words["num_hidden_layers"] - 1)]
    return words | {"layer_types": kinds + ["full_attention"]}


def shared_expert(choose):
    return {"num_experts": 6, "num_experts_per_tok": choose([1, 3]), "moe_intermediate_size": choose([32, 60]),
            "shared_expert_intermediate_size": choose([32, 48])}


def qwen3_next(choose):
    return "Qwen3Next", delta(choose) | shared_expert(choose) | {"norm_topk_prob": choose([False, True]), "decoder_sparse_step": choose([1, 2])}


def qwen3_5(choose):
    return "Qwen3_5", delta(choose)


def qwen3_5_moe(choose):
    words = delta(choose) | shared_expert(choose)
    del words["intermediate_size"]
    return "Qwen3_5Moe", words


def latent(choose):
    words = headless(common(choose))
    heads = words["num_key_value_heads"] = words["num_attention_heads"]
    rope_dim = choose([4, 8, 16])
    words |= {"q_lora_rank": choose([None, 24]), "kv_lora_rank": choose([16, 36]), "qk_nope_head_dim": choose([8, 20]),
              "qk_rope_head_dim": rope_dim, "v_head_dim": choose([8, 28]), "hidden_size": heads * choose([8, 12, 20]),
              "num_hidden_layers": choose([2, 3]), "n_routed_experts": 8, "num_experts_per_tok": choose([1, 2]),
              "n_shared_experts": choose([1, 2]), "moe_intermediate_size": choose([32, 60]), "first_k_dense_replace": choose([0, 1]),
              "attention_bias": choose([False, True]), "routed_scaling_factor": choose([1.0, 2.5])}
    words["rope_parameters"] = rope(choose, rope_dim, ["default", "yarn"])
    if words["rope_parameters"]["rope_type"] == "yarn" and choose([False, True]):
        words["rope_parameters"] |= {"mscale": 1.0, "mscale_all_dim": choose([0.7, 1.0])}
    return words


def deepseek_v2(choose):
    groups = choose([1, 2, 4])
    return "DeepseekV2", latent(choose) | {"n_group": groups, "topk_group": min(groups, 2), "topk_method": choose(["greedy", "group_limited_greedy"])}


def deepseek_v3(choose):
    groups = choose([1, 2, 4])
    return "DeepseekV3", latent(choose) | {"n_group": groups, "topk_group": min(groups, 2), "norm_topk_prob": choose([False, True])}


def gpt_oss(choose):
    words = short_rope(choose, common(choose), ["default", "yarn"]) | {
        "num_hidden_layers": choose([1, 2, 3]), "num_local_experts": 5, "num_experts_per_tok": choose([1, 3]), "sliding_window": choose([7, 64]),
        "swiglu_limit": choose([0.3, 7.0])}
    return "GptOss", words


def llama4(choose):
    layers = choose([2, 3, 4])
    words = common(choose) | {
        "num_hidden_layers": layers, "attention_chunk_size": choose([5, 16, 64]), "use_qk_norm": choose([False, True]),
        "no_rope_layer_interval": choose([2, 3]), "interleave_moe_layer_step": choose([1, 2]), "num_local_experts": 4,
        "num_experts_per_tok": choose([1, 2]), "intermediate_size_mlp": choose([64, 100]), "floor_scale": choose([4, 8192]),
        "attn_scale": choose([0.1, 0.5]), "attn_temperature_tuning": choose([False, True])}
    words["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    return "Llama4", words


def gemma4(choose):
    words = common(choose)
    layers = choose([3, 4, 6])
    kinds = [choose(["sliding_attention", "full_attention"]) for _ in range(layers - 1)] + ["full_attention"]
    own_inputs = choose([0, 12])
    shared = choose([0, 1]) if own_inputs else 0  # transformers fails otherwise
    if shared and len(set(kinds[:-1])) < 2:
        kinds[:2] = ["sliding_attention", "full_attention"]
    words |= {"num_hidden_layers": layers, "layer_types": kinds, "num_kv_shared_layers": shared, "sliding_window": choose([7, 64]),
              "hidden_size_per_layer_input": own_inputs, "vocab_size_per_layer_input": VOCABULARY, "use_double_wide_mlp": choose([False, True]),
              "attention_k_eq_v": choose([False, True]), "final_logit_softcapping": choose([None, 5.0]), "global_head_dim": choose([8, 40]),
              "rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": choose([0.25, 0.5]), "rope_theta": 1e6},
                                  "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}
    if choose([False, True]):
        words |= {"enable_moe_block": True, "num_experts": 5, "top_k_experts": choose([1, 3]), "moe_intermediate_size": choose([32, 60])}
    return "Gemma4", words


FAMILIES = [llama, mistral, qwen2, qwen3, phi3, gemma, gemma2, glm, mixtral, qwen3_moe, chatglm, olmo2, seed_oss, ernie4_5, hunyuan, granite, smollm3, exaone4, olmo3, cohere2, minimax_m2, phimoe, glm4_moe, ministral3, gemma3, granitemoe, lfm2,
            qwen3_next, qwen3_5, qwen3_5_moe, deepseek_v2, deepseek_v3, gpt_oss, llama4, gemma4]
