#include "convert/plan.h"

#include <algorithm>

#include "tests/convert/described.h"
#include "tests/loader/files/packed_checkpoint.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::Plan;
using convert::PlannedTensor;
using convert::QuantizeOptions;

namespace {

std::string sized(std::size_t bytes) { return std::string(bytes, '\1'); }

}  // namespace

TEST_CASE("plan: one tensor and what becomes of it", "[plan]") {
  struct Row {
    const char* what;
    TestTensor tensor;
    QuantizeOptions options;
    const char* scheme;  // null: kept
    std::int64_t group_size;
    const char* reason;
  };
  const QuantizeOptions none;
  const std::string w = "l.weight";
  const std::vector<Row> rows = {
      {"default", {w, "BF16", {4, 192}, sized(1536)}, none, "sym_int4", 64, ""},
      {"int8", {w, "BF16", {4, 192}, sized(1536)}, {.scheme = "sym_int8"}, "sym_int8", 64, ""},
      {"group of 128 does not divide",
       {w, "F16", {4, 192}, sized(1536)},
       {.group_size = 128},
       "sym_int4",
       64,
       "in_features 192: group size 128 does not divide it, 64 does"},
      {"group of 64 does not divide",
       {w, "BF16", {1, 96}, sized(192)},
       none,
       "sym_int4",
       32,
       "in_features 96: group size 64 does not divide it, 32 does"},
      {"only 16 divides",
       {w, "BF16", {1, 80}, sized(160)},
       none,
       "sym_int4",
       16,
       "in_features 80: group size 64 does not divide it, 16 does"},
      {"none divides",
       {w, "BF16", {2, 172}, sized(688)},
       none,
       nullptr,
       0,
       "in_features 172: no group size of 128, 64, 32, 16 divides it"},
      {"one scale a row", {w, "BF16", {2, 172}, sized(688)}, {.group_size = 0}, "sym_int4", 172, ""},
      {"one scale for one column", {w, "BF16", {2, 1}, sized(4)}, {.group_size = 0}, "sym_int4", 1, ""},
      {"kept", {w, "BF16", {4, 64}, sized(512)}, {.keep = {"l"}}, nullptr, 0, "matched keep l"},
      {"asked to keep",
       {w, "BF16", {4, 64}, sized(512)},
       {.scheme_for = {{"l", "keep"}}},
       nullptr,
       0,
       "matched scheme_for l=keep"},
      {"the last wish wins",
       {w, "BF16", {4, 64}, sized(512)},
       {.scheme_for = {{"l", "keep"}, {"*", "sym_int8"}}},
       "sym_int8",
       64,
       ""},
      {"keep wins over wishes",
       {w, "BF16", {4, 64}, sized(512)},
       {.keep = {"*"}, .scheme_for = {{"l", "sym_int8"}}},
       nullptr,
       0,
       "matched keep *"},
      {"rank 0", {"scalar", "BF16", {}, sized(2)}, none, nullptr, 0, "not known to be a Linear"},
      {"rank 1", {"norm.weight", "BF16", {64}, sized(128)}, none, nullptr, 0, "a norm"},
      {"rank 3", {"experts.weight", "BF16", {2, 4, 64}, sized(1024)}, none, nullptr, 0, "not known to be a Linear"},
      {"rank 3 asked for",
       {"experts.weight", "BF16", {2, 4, 64}, sized(1024)},
       {.scheme_for = {{"*", "sym_int8"}}},
       nullptr,
       0,
       ""},
      {"bias", {"l.bias", "BF16", {64}, sized(128)}, none, nullptr, 0, "a bias"},
      {"empty", {w, "BF16", {0, 64}, ""}, none, nullptr, 0, "empty"},
      {"no columns", {w, "BF16", {4, 0}, ""}, {.group_size = 0}, nullptr, 0, "empty"},
      {"integers", {w, "I64", {1, 64}, sized(512)}, none, nullptr, 0, "int64 is not a floating-point dtype"},
      {"fp8 already",
       {w, "F8_E4M3", {4, 64}, sized(256)},
       none,
       nullptr,
       0,
       "float8_e4m3fn is not float32, float16 or bfloat16"},
      {"double", {w, "F64", {1, 64}, sized(512)}, none, nullptr, 0, "float64 is not float32, float16 or bfloat16"},
      {"head",
       {"lm_head.weight", "BF16", {4, 64}, sized(512)},
       none,
       nullptr,
       0,
       "the output head; quantised when head asks for it"},
      {"head asked for",
       {"lm_head.weight", "BF16", {4, 64}, sized(512)},
       {.scheme_for = {{"lm_head", "sym_int8"}}},
       "sym_int8",
       64,
       ""},
      {"embedding",
       {"model.embed_tokens.weight", "BF16", {4, 64}, sized(512)},
       none,
       nullptr,
       0,
       "an embedding; packed when embedding asks for it"},
      {"head asked for by its role",
       {"lm_head.weight", "BF16", {4, 64}, sized(512)},
       {.scheme_for = {{"*", "keep"}}, .head = "sym_int8"},
       "sym_int8",
       64,
       ""},
      {"embedding asked for",
       {"model.embed_tokens.weight", "BF16", {4, 64}, sized(512)},
       {.halfbyte_only = true, .scheme_for = {{"*", "sym_int4"}}, .embedding = "sym_int8"},
       "sym_int8",
       64,
       ""},
      {"embedding asked for, of rows that groups do not divide",
       {"wte.weight", "BF16", {4, 100}, sized(800)},
       {.halfbyte_only = true, .embedding = "sym_int8"},
       nullptr,
       0,
       "in_features 100: no group size of 128, 64, 32, 16 divides it"},
      {"embedding asked to stay",
       {"model.embed_tokens.weight", "BF16", {4, 64}, sized(512)},
       {.embedding = "keep"},
       nullptr,
       0,
       "matched embedding keep"},
      {"keep wins over roles",
       {"model.embed_tokens.weight", "BF16", {4, 64}, sized(512)},
       {.keep = {"*embed*"}, .embedding = "sym_int8"},
       nullptr,
       0,
       "matched keep *embed*"},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const auto source = described({row.tensor});
    if (std::string(row.what) == "rank 3 asked for") {
      check_error(ErrorCode::kUnsupported, {"scheme_for *", "rank 3"}, [&] { convert::plan(source, row.options); });
      continue;
    }
    const PlannedTensor planned = convert::plan(source, row.options).tensors.at(0);
    CHECK((planned.scheme ? std::string(planned.scheme->name) : "kept") == (row.scheme ? row.scheme : "kept"));
    CHECK(planned.group_size == row.group_size);
    CHECK(planned.reason.str() == row.reason);
    CHECK(planned.bytes_before == row.tensor.bytes.size());
    if (!planned.scheme) CHECK(planned.bytes_after == planned.bytes_before);
  }
}

TEST_CASE("plan: scales have the tensor's dtype, float32 ones float16", "[plan]") {
  const auto source = described({{"a.weight", "F32", {1, 64}, sized(256)},
                                 {"b.weight", "F16", {1, 64}, sized(128)},
                                 {"c.weight", "BF16", {1, 64}, sized(128)}});
  const Plan plan = convert::plan(source, {});
  CHECK((of(plan, source, "a.weight").scale_dtype == Dtype::kFloat16));
  CHECK((of(plan, source, "b.weight").scale_dtype == Dtype::kFloat16));
  CHECK((of(plan, source, "c.weight").scale_dtype == Dtype::kBfloat16));
}

TEST_CASE("plan: sizes add up", "[plan]") {
  const auto source = described(llama_tensors(), llama_config());
  const Plan plan = convert::plan(source, {.group_size = 32});
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    before += tensor.bytes_before;
    after += tensor.bytes_after;
  }
  CHECK(plan.bytes_before == before);
  CHECK(plan.bytes_before == source.size_bytes);
  CHECK(plan.bytes_after == after);
  // 16 bytes of codes and one scale a row, and the shape.
  CHECK(of(plan, source, "model.layers.0.self_attn.k_proj.weight").bytes_after == 16 * (16 + 2) + 16);
}

TEST_CASE("plan: Llama's Linears and nothing else", "[plan]") {
  const auto source = described(llama_tensors(), llama_config());
  const Plan plan = convert::plan(source, {});
  for (const PlannedTensor& tensor : plan.tensors) {
    const std::string& name = source.tensors[tensor.source].name;
    INFO(name);
    CHECK((tensor.scheme != nullptr) == (name.find("_proj") != std::string::npos));
  }
  CHECK(plan.notes.empty());
}

TEST_CASE("plan: tied tensors", "[plan]") {
  const auto once = described(llama_tensors(false), llama_config(true));
  CHECK_NOTHROW(convert::plan(once, {.keep = {"lm_head"}}));
  check_error(ErrorCode::kInvalidArgument, {"lm_head.weight", "tied to model.embed_tokens.weight"},
              [&] { convert::plan(once, {.scheme_for = {{"lm_head", "sym_int8"}}}); });
  const auto twice = described(llama_tensors(), llama_config(true));
  const Plan plan = convert::plan(twice, {});
  CHECK(of(plan, twice, "lm_head.weight").tied_to == "model.embed_tokens.weight");
  CHECK(of(plan, twice, "lm_head.weight").bytes_after == 0);
  auto tensors = llama_tensors();
  tensors.back() = float_tensor("lm_head.weight", {8, 32});
  const auto different = described(tensors, llama_config(true));
  check_error(ErrorCode::kCorrupt, {"lm_head.weight", "tie_word_embeddings"}, [&] { convert::plan(different, {}); });
}

TEST_CASE("plan: wishes that make no sense", "[plan]") {
  const auto source = described(llama_tensors(), llama_config());
  using enum ErrorCode;
  struct Row {
    QuantizeOptions options;
    ErrorCode code;
    std::vector<std::string> parts;
  };
  const std::vector<Row> rows = {
      {{.scheme = "int3"}, kInvalidArgument, {"\"int3\"", "sym_int4, sym_int8"}},
      {{.group_size = 48}, kInvalidArgument, {"48", "128, 64, 32, 16"}},
      {{.group_size = -1}, kInvalidArgument, {"-1"}},
      {{.keep = {"nothing"}}, kInvalidArgument, {"keep \"nothing\"", "matches no tensor"}},
      {{.scheme_for = {{"nothing", "sym_int8"}}}, kInvalidArgument, {"scheme_for \"nothing\""}},
      {{.scheme_for = {{"*", "int3"}}}, kInvalidArgument, {"\"int3\""}},
      {{.scheme_for = {{"embed_tokens", "sym_int8"}}}, kUnsupported, {"embed_tokens", "embedding"}},
      {{.scheme_for = {{"norm", "sym_int8"}}}, kUnsupported, {"norm", "rank 1"}},
  };
  for (const Row& row : rows) check_error(row.code, row.parts, [&] { convert::plan(source, row.options); });
  // In vain for some tensors, but not for all.
  CHECK_NOTHROW(convert::plan(source, {.scheme_for = {{"*", "sym_int8"}}}));
}

TEST_CASE("plan: one family a checkpoint, unless only halfbyte will read it", "[plan]") {
  const auto source = described(llama_tensors(), llama_config());
  struct Row {
    QuantizeOptions options;
    std::vector<std::string> parts;
  };
  const std::vector<Row> rows = {
      {{.scheme = "fp4_e2m1", .group_size = 32}, {"fp4_e2m1", "add halfbyte_only"}},
      {{.scheme = "nf4", .group_size = 32, .scheme_for = {{"*down_proj*", "sym_int8"}}},
       {"sym_int8", "compressed-tensors", "nf4", "bitsandbytes", "add halfbyte_only"}},
  };
  for (Row row : rows) {
    check_error(ErrorCode::kInvalidArgument, row.parts, [&] { convert::plan(source, row.options); });
    row.options.halfbyte_only = true;
    const Plan plan = convert::plan(source, row.options);
    CHECK_FALSE(plan.has_foreign_readers);
    REQUIRE(plan.notes.size() == 1);
    CHECK(plan.notes[0].str().find("only halfbyte can read the result") == 0);
  }
  const std::vector<std::pair<std::string, std::string>> mixes = {{"sym_int4", "asym_int4"}, {"nf4", "fp4"}};
  for (const auto& [scheme, other] : mixes) {
    CHECK(convert::plan(source, {.scheme = scheme, .group_size = 32, .scheme_for = {{"*down_proj*", other}}})
              .has_foreign_readers);
  }
  CHECK(convert::plan(source, {.scheme = "nf4", .group_size = 32, .halfbyte_only = true}).has_foreign_readers);
}

TEST_CASE("plan: bitsandbytes's scales are float32 or nested, its groups 128, 64 or 32", "[plan]") {
  const auto source = described(llama_tensors(), llama_config());
  for (const std::int64_t group_size : {std::int64_t{16}, kPerChannel}) {
    check_error(ErrorCode::kInvalidArgument, {"nf4", "128, 64, 32"},
                [&] { convert::plan(source, {.scheme = "nf4", .group_size = group_size}); });
  }
  check_error(ErrorCode::kInvalidArgument, {"nested_scales is for", "sym_int4"},
              [&] { convert::plan(source, {.nested_scales = true}); });
  const std::string name = "model.layers.0.mlp.down_proj.weight";  // [32, 64]
  const Plan plain = convert::plan(source, {.scheme = "nf4", .group_size = 32});
  CHECK(of(plain, source, name).scale_dtype == Dtype::kFloat32);
  CHECK(of(plain, source, name).bytes_after == 32 * 64 / 2 + 64 * 4 + 16 * 4 + 256);
  const Plan nested = convert::plan(source, {.scheme = "fp4", .group_size = 32, .nested_scales = true});
  CHECK(of(nested, source, name).scale_dtype == Dtype::kUint8);
  CHECK(of(nested, source, name).bytes_after == 32 * 64 / 2 + 64 + 16 * 4 + 4 + 256 * 4 + 256);
  auto tensors = llama_tensors();
  for (TestTensor& tensor : tensors) {
    if (tensor.name == name) tensor = float_tensor(name, {32, 48});
  }
  const auto odd = described(tensors, llama_config());
  CHECK(of(convert::plan(odd, {.scheme = "nf4"}), odd, name).reason.str() ==
        "in_features 48: no group size of 128, 64, 32 divides it");
}

TEST_CASE("plan: what is quantised already is refused", "[plan]") {
  const Scratch scratch;
  write_packed_checkpoint(scratch / "m");
  const auto source = files::open_checkpoint(scratch / "m");
  check_error(ErrorCode::kUnsupported, {"\"a.weight\"", "sym_int4", "original"}, [&] { convert::plan(source, {}); });
}

TEST_CASE("plan: names of parts that are taken", "[plan]") {
  const auto source = described({float_tensor("a.weight", {1, 64}), float_tensor("a.weight_scale", {1})});
  const Plan plan = convert::plan(source, {});
  CHECK(of(plan, source, "a.weight").scheme == nullptr);
  CHECK(of(plan, source, "a.weight").reason.str() == "\"a.weight_scale\" is there already");
}

TEST_CASE("plan: notes name what the user should hear", "[plan]") {
  const Scratch scratch;
  write_checkpoint(scratch / "m", {float_tensor("a.weight", {1, 64})}, {{"model_type", "foo"}});
  write_text(scratch / "m" / "modeling_foo.py", "x");
  write_text(scratch / "m" / "pytorch_model.bin", "x");
  const Plan plan = convert::plan(files::open_checkpoint(scratch / "m"), {});
  REQUIRE(plan.notes.size() == 3);
  CHECK(plan.notes[0].str().find("\"foo\"") != std::string::npos);
  CHECK(plan.notes[1].str().find("modeling_foo.py") != std::string::npos);
  CHECK(plan.notes[2].str().find("pytorch_model.bin") != std::string::npos);
}

TEST_CASE("plan: sizes in config.json say what is no Linear in a family that is not known", "[plan]") {
  const files::Checkpoint source = described({{"h.0.moe.gate.weight", "BF16", {6, 64}, sized(768)},
                                              {"h.0.attn.q_proj.weight", "BF16", {6, 64}, sized(768)},
                                              {"h.0.mix.rate.weight", "BF16", {12, 64}, sized(1536)},
                                              {"h.0.mix.kernel.weight", "BF16", {64, 16}, sized(2048)},
                                              {"h.0.mix.time.weight", "BF16", {64, 32}, sized(4096)},
                                              {"words.weight", "BF16", {96, 64}, sized(12288)},
                                              {"h.0.experts.all.weight", "BF16", {6, 64, 32}, sized(24576)},
                                              {"h.0.mlp.up.weight", "BF16", {128, 64}, sized(16384)}},
                                             {{"model_type", "made_up"},
                                              {"vocab_size", 96},
                                              {"text_config",
                                               {{"num_experts", 6},
                                                {"num_experts_per_tok", 2},
                                                {"num_attention_heads", 12},
                                                {"d_conv", 16},
                                                {"dt_rank", 32}}}});
  const Plan plan = convert::plan(source, {});
  for (const auto& [name, reason] : {std::pair{"h.0.moe.gate.weight", "\"num_experts\" (6): taken for a router"},
                                     {"h.0.mix.rate.weight", "\"num_attention_heads\" (12): taken for a gate"},
                                     {"h.0.mix.kernel.weight", "\"d_conv\" (16): taken for a convolution"},
                                     {"h.0.mix.time.weight", "\"dt_rank\" (32): taken for what decides"},
                                     {"words.weight", "\"vocab_size\" (96): taken for an embedding or a head"},
                                     {"h.0.experts.all.weight", "(6): taken for a stack of experts"}}) {
    INFO(name);
    const PlannedTensor& kept = of(plan, source, name);
    CHECK(kept.scheme == nullptr);
    CHECK_THAT(kept.reason.str(cpp_spelling()), Catch::Contains(reason));
  }
  for (const char* name : {"h.0.attn.q_proj.weight", "h.0.mlp.up.weight"}) {
    INFO(name);
    CHECK(of(plan, source, name).scheme != nullptr);
  }
  REQUIRE_FALSE(plan.notes.empty());
  CHECK_THAT(plan.notes.front().str(cpp_spelling()),
             Catch::Contains("is not known") && Catch::Contains("1 with as many rows as"));
  const Plan asked = convert::plan(source, {.scheme_for = {{"words.weight", "sym_int8"}}});
  CHECK(of(asked, source, "words.weight").scheme != nullptr);
}
