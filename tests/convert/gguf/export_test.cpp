#include "convert/gguf/export.h"

#include <cmath>

#include <halfbyte/convert.h>

#include "tests/convert/gguf/same.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

fs::path tiny() { return test_data() / "tiny-llama"; }

}  // namespace

TEST_CASE("export to GGUF: an original keeps its values, and says the same of itself", "[export]") {
  const Scratch scratch;
  const auto summary = convert::export_gguf(tiny(), scratch / "m.gguf");
  CHECK(summary.result_bytes == fs::file_size(scratch / "m.gguf"));
  check_same(tiny(), scratch / "m.gguf");
  const auto source = files::open_checkpoint(tiny()), result = files::open_checkpoint(scratch / "m.gguf");
  for (const char* key : {"model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps",
                          "rope_theta", "tie_word_embeddings", "bos_token_id", "eos_token_id"}) {
    INFO("key: " << key);
    CHECK((*result.config)[key] == (*source.config)[key]);
  }
  CHECK(result.generated_files.contains("tokenizer.model"));
}

TEST_CASE("export to GGUF: codes of sym_int4 are those of Q4_0, and come back byte for byte", "[export]") {
  const Scratch scratch;
  for (const std::int64_t group : {32, 64}) {
    INFO("group_size: " << group);
    convert::quantize(tiny(), scratch / "q", {.scheme = "sym_int4", .group_size = group, .overwrite = true});
    const auto summary = convert::export_gguf(scratch / "q", scratch / "m.gguf", {.overwrite = true});
    CHECK(summary.exact_tensors > 0);
    CHECK(summary.requantized_tensors == 0);
    check_same(scratch / "q", scratch / "m.gguf");
    convert::export_gguf(scratch / "m.gguf", scratch / "again.gguf", {.overwrite = true});
    CHECK(read_text(scratch / "m.gguf") == read_text(scratch / "again.gguf"));
  }
  convert::quantize(tiny(), scratch / "q8", {.scheme = "sym_int8", .group_size = 64});
  CHECK(convert::export_gguf(scratch / "q8", scratch / "m8.gguf").exact_tensors > 0);
  check_same(scratch / "q8", scratch / "m8.gguf");
}

TEST_CASE("export to GGUF: affine_int4 and iq4_nl are Q4_1 and IQ4_NL, and come back byte for byte", "[export]") {
  const Scratch scratch;
  for (const char* scheme : {"affine_int4", "iq4_nl"}) {
    INFO("scheme: " << scheme);
    convert::export_gguf(tiny(), scratch / "f32.gguf", {.type = "F32", .overwrite = true});  // float16 scales
    convert::quantize(scratch / "f32.gguf", scratch / "q",
                      {.scheme = scheme, .group_size = 32, .halfbyte_only = true, .overwrite = true});
    const auto summary = convert::export_gguf(scratch / "q", scratch / "m.gguf", {.overwrite = true});
    CHECK(summary.exact_tensors > 0);
    CHECK(summary.requantized_tensors == 0);
    check_same(scratch / "q", scratch / "m.gguf");
    convert::repack(scratch / "m.gguf", scratch / "r", {.overwrite = true});
    for (const char* from : {"m.gguf", "r"}) {
      convert::export_gguf(scratch / from, scratch / "again.gguf", {.overwrite = true});
      CHECK(read_text(scratch / "m.gguf") == read_text(scratch / "again.gguf"));
    }
    convert::export_gguf(scratch / "q", scratch / "q8.gguf", {.type = "Q8_0", .requantize = true, .overwrite = true});
    convert::quantize(tiny(), scratch / "b",
                      {.scheme = scheme, .group_size = 16, .halfbyte_only = true, .overwrite = true});
    check_error(ErrorCode::kUnsupported, {"16", "; requantize takes"},
                [&] { convert::export_gguf(scratch / "b", scratch / "b.gguf", {.overwrite = true}); });
    convert::export_gguf(scratch / "b", scratch / "b.gguf", {.requantize = true, .overwrite = true});
  }
}

TEST_CASE("export to GGUF: the blocks that llama.cpp wrote come out as they went in", "[export]") {
  const Scratch scratch;
  for (const char* type : {"Q4_1", "IQ4_NL"}) {
    const fs::path from = shared_data() / "fixtures" / "peers" / "gguf" / ("tiny-" + std::string(type) + ".gguf");
    if (!fs::exists(from)) {
      WARN("skipped: " << from << " is not here");
      continue;
    }
    INFO("type: " << type);
    convert::repack(from, scratch / type);
    CHECK(convert::export_gguf(scratch / type, scratch / "m.gguf", {.overwrite = true}).exact_tensors > 0);
    check_same(from, scratch / "m.gguf");
    convert::export_gguf(from, scratch / "direct.gguf", {.overwrite = true});
    CHECK(read_text(scratch / "m.gguf") == read_text(scratch / "direct.gguf"));
    convert::export_gguf(scratch / "m.gguf", scratch / "again.gguf", {.overwrite = true});
    CHECK(read_text(scratch / "m.gguf") == read_text(scratch / "again.gguf"));
  }
}

TEST_CASE("export to GGUF: what it cannot say is refused, unless asked to be said nearly", "[export]") {
  const Scratch scratch;
  convert::quantize(tiny(), scratch / "nf4", {.scheme = "nf4", .group_size = 64});
  check_error(ErrorCode::kUnsupported, {"model.layers", "nf4", "; requantize takes"},
              [&] { convert::export_gguf(scratch / "nf4", scratch / "m.gguf"); });
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"nf4"});
  const auto summary = convert::export_gguf(scratch / "nf4", scratch / "m.gguf", {.requantize = true});
  CHECK(summary.requantized_tensors > 0);
  const auto source = files::open_checkpoint(scratch / "nf4"), result = files::open_checkpoint(scratch / "m.gguf");
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const auto wanted = values_of(source, *source.manifest.find(name)),
             found = values_of(result, *result.manifest.find(name));
  float largest = 0, error = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    error = std::max(error, std::abs(wanted[i] - found[i]));
  }
  CHECK(error < largest / 127);
  check_error(ErrorCode::kAlreadyExists, {"m.gguf", "; overwrite replaces"},
              [&] { convert::export_gguf(tiny(), scratch / "m.gguf"); });
  check_error(ErrorCode::kInvalidArgument, {"Q3"},
              [&] { convert::export_gguf(tiny(), scratch / "n.gguf", {.type = "Q3"}); });
}

TEST_CASE("export to GGUF: a checkpoint whose tensors are not its configuration's is refused", "[export]") {
  const Scratch scratch;
  const auto refused = [&](const std::vector<TestTensor>& tensors, const std::string& part) {
    fs::remove_all(scratch / "m");
    write_checkpoint(scratch / "m", tensors, llama_config());
    check_error(ErrorCode::kCorrupt, {part}, [&] { convert::export_gguf(scratch / "m", scratch / "m.gguf"); });
    CHECK_FALSE(fs::exists(scratch / "m.gguf"));
  };
  const std::vector<TestTensor> whole = llama_tensors();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    INFO(whole[i].name);
    std::vector<TestTensor> tensors = whole;
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
    refused(tensors, whole[i].name + " is missing");
    tensors = whole;
    tensors[i] = float_tensor(whole[i].name, {3, 32});
    refused(tensors, whole[i].name + " has shape [3, 32]");
  }
  refused({}, "is missing");
}

TEST_CASE("export to GGUF: matrices become the type that is asked for", "[export]") {
  const Scratch scratch;
  for (const char* type : {"F16", "F32", "Q8_0", "Q4_0", "Q4_1"}) {
    INFO("type: " << type);
    convert::export_gguf(tiny(), scratch / "m.gguf", {.type = type, .overwrite = true});
    const auto result = files::open_checkpoint(scratch / "m.gguf");
    const auto& record = *result.manifest.find("model.layers.0.mlp.up_proj.weight");
    const auto source = files::open_checkpoint(tiny());
    const auto wanted = values_of(source, *source.manifest.find(record.name)), found = values_of(result, record);
    double error = 0, power = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      error += std::pow(wanted[i] - found[i], 2);
      power += std::pow(wanted[i], 2);
    }
    CHECK(std::sqrt(error / power) < (std::string(type).starts_with("Q4") ? 0.12 : 0.01));
  }
}

TEST_CASE("export to GGUF: a byte-level tokenizer goes along", "[export]") {
  const Scratch scratch;
  write_checkpoint(scratch / "m", llama_tensors(), llama_config());
  const nlohmann::json template_processing = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}}};
  nlohmann::json tokenizer = {
      {"added_tokens", {{{"id", 3}, {"content", "<s>"}, {"special", true}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"use_regex", true}}},
      {"post_processor", {{"type", "Sequence"}, {"processors", {template_processing}}}},
      {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}}};
  write_text(scratch / "m" / "tokenizer.json", tokenizer.dump());
  convert::export_gguf(scratch / "m", scratch / "m.gguf");
  const auto result = files::open_checkpoint(scratch / "m.gguf");
  const auto json = nlohmann::json::parse(result.generated_files.at("tokenizer.json")());
  CHECK(json["model"]["vocab"] == tokenizer["model"]["vocab"]);
  CHECK(json["model"]["merges"] == nlohmann::json::parse(R"([["a","b"]])"));
  CHECK(json["added_tokens"][0]["content"] == "<s>");
  CHECK(json["post_processor"]["single"][0]["SpecialToken"]["id"] == "<s>");
  const nlohmann::json bytes = {{"type", "ByteLevel"}, {"use_regex", true}},
                       own = {{"type", "ByteLevel"}, {"use_regex", false}};
  const auto split = [](const char* pattern) {
    return nlohmann::json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
  };
  const nlohmann::json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const std::vector<std::vector<nlohmann::json>> sequences = {
      {digits, bytes},
      {split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|"
             "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
       own}};
  for (const auto& steps : sequences) {  // ends of lines as themselves, or as an expression has them
    tokenizer["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
    write_text(scratch / "m" / "tokenizer.json", tokenizer.dump());
    convert::export_gguf(scratch / "m", scratch / "m.gguf", {.overwrite = true});
    const auto back =
        nlohmann::json::parse(files::open_checkpoint(scratch / "m.gguf").generated_files.at("tokenizer.json")());
    CHECK(back["pre_tokenizer"]["pretokenizers"].size() == 2);
    CHECK(back["pre_tokenizer"]["pretokenizers"][1]["use_regex"] == (steps[0] == digits));
  }
  tokenizer["pre_tokenizer"] = {{"type", "Whitespace"}};
  write_text(scratch / "m" / "tokenizer.json", tokenizer.dump());
  check_error(ErrorCode::kUnsupported, {"tokenizer.json", "splits"},
              [&] { convert::export_gguf(scratch / "m", scratch / "m.gguf", {.overwrite = true}); });
}

TEST_CASE("export to GGUF: a stop leaves nothing, and nothing is written into the source", "[export]") {
  const Scratch scratch;
  std::stop_source stopped;
  stopped.request_stop();
  CHECK_THROWS_WITH(convert::export_gguf(tiny(), scratch / "m.gguf", {.stop = stopped.get_token()}),
                    Catch::Contains("stopped"));
  CHECK(names_in(scratch.path()).empty());
  fs::copy(tiny(), scratch / "s", fs::copy_options::recursive);
  CHECK_THROWS_WITH(convert::export_gguf(scratch / "s", scratch / "s" / "m.gguf"), Catch::Contains("within"));
  std::uint64_t last = 0, total = 1;
  const auto summary =
      convert::export_gguf(tiny(), scratch / "m.gguf", {.progress = [&](std::uint64_t done, std::uint64_t all) {
                             last = done;
                             total = all;
                           }});
  CHECK(last > 0);
  CHECK(last <= total);
  CHECK(total <= summary.result_bytes);
}
