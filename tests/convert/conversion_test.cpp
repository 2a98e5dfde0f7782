// A conversion is decided once and run as it was decided.
#include "convert/conversion.h"

#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::Conversion;
using convert::Quantization;
using convert::QuantizeOptions;
using convert::Repacking;

namespace {

void write_source(const fs::path& directory) {
  fs::create_directories(directory);
  write_text(directory / "model.safetensors",
             safetensors({float_tensor("a.weight", {16, 128}), float_tensor("lm_head.weight", {8, 64}),
                          float_tensor("norm.weight", {64})}));
  write_text(directory / "config.json", R"({"model_type": "foo"})");
}

// A plain source and a quantised one.
struct Sources {
  Scratch scratch;
  fs::path plain = scratch / "plain";
  fs::path quantised = scratch / "quantised";

  Sources() {
    write_source(plain);
    convert::quantize(plain, quantised, {.scheme = "sym_int8"});
  }
};

bool is_repacking(const Conversion& conversion) { return std::holds_alternative<Repacking>(conversion.work); }

}  // namespace

TEST_CASE("conversion: options decide whether codes are kept", "[conversion]") {
  const Sources sources;
  const std::vector<QuantizeOptions> choices = {{.scheme = "nf4"},
                                                {.group_size = 64},
                                                {.search = quant::Search::kSquaredError},
                                                {.scheme = "nf4", .nested_scales = true},
                                                {.keep = {"a"}},
                                                {.scheme_for = {{"a", "sym_int8"}}}};
  for (QuantizeOptions options : choices) {
    options.keep_codes = true;
    const Conversion again = convert::prepare(sources.quantised, options);
    CHECK_FALSE(is_repacking(again));
    CHECK_THAT(again.warning.str(), Catch::StartsWith("the source is quantised already (halfbyte)"));
    CHECK_FALSE(again.source->is_quantized());
    options.keep_codes = false;
    check_error(ErrorCode::kUnsupported, {"quantised already", "or requantize"},
                [&] { convert::prepare(sources.quantised, options); });
  }
  const Conversion kept = convert::prepare(sources.quantised, {.threads = 1, .keep_codes = true});
  CHECK(is_repacking(kept));
  CHECK(kept.warning.empty());
  CHECK_FALSE(is_repacking(convert::prepare(sources.quantised, {.requantize = true})));
  CHECK_FALSE(is_repacking(convert::prepare(sources.quantised, {.requantize = true, .keep_codes = true})));
  const Conversion plain = convert::prepare(sources.plain, {.requantize = true, .keep_codes = true});
  CHECK_FALSE(is_repacking(plain));
  CHECK(plain.warning.empty());
}

TEST_CASE("conversion: what was prepared is what is written, and the source is not opened again", "[conversion]") {
  const Sources sources;
  const std::vector<std::pair<fs::path, QuantizeOptions>> cases = {
      {sources.plain, {.scheme = "asym_int4"}},
      {sources.quantised, {.scheme = "nf4", .keep_codes = true}},
      {sources.quantised, {.keep_codes = true}}};
  for (const auto& [source, options] : cases) {
    CAPTURE(source);
    const Scratch scratch;
    convert::quantize(source, scratch / "wanted", options);
    const fs::path moved = scratch / "moved";
    fs::rename(source, moved);
    Conversion conversion = convert::prepare(moved, options);
    fs::rename(moved, source);  // nothing is under the name that was given any more
    const Conversion copy = conversion;
    for (const Conversion& one : {copy, std::move(conversion)}) {
      convert::run(one, scratch / "result");
      CHECK(contents_of(scratch / "result") == contents_of(scratch / "wanted"));
      fs::remove_all(scratch / "result");
    }
  }
}

TEST_CASE("conversion: preparing writes nothing and asks nothing of the destination", "[conversion]") {
  const Sources sources;
  const auto before = names_in(sources.scratch.path());
  const Conversion conversion = convert::prepare(sources.plain, {});
  const auto& work = std::get<Quantization>(conversion.work);
  CHECK(names_in(sources.scratch.path()) == before);
  REQUIRE(work.plan.tensors.size() == 3);
  CHECK(work.layout.places.size() == 3);
  CHECK(work.memory.block_bytes.size() == 3);
  check_error(ErrorCode::kInvalidArgument, {"within"}, [&] { convert::run(conversion, sources.plain / "x"); });
  check_error(ErrorCode::kAlreadyExists, {"overwrite replaces"}, [&] { convert::run(conversion, sources.quantised); });
}

TEST_CASE("conversion: one call does the same, and says what a user should hear", "[conversion]") {
  const Sources sources;
  const auto summary =
      convert::quantize(sources.quantised, sources.scratch / "again", {.scheme = "nf4", .keep_codes = true});
  REQUIRE_FALSE(summary.notes.empty());
  CHECK_THAT(summary.notes[0].str(), Catch::Contains("its errors stay"));
  convert::quantize(sources.quantised, sources.scratch / "kept", {.keep_codes = true});
  convert::repack(sources.quantised, sources.scratch / "repacked");
  CHECK(contents_of(sources.scratch / "kept") == contents_of(sources.scratch / "repacked"));
}

TEST_CASE("conversion: codes that are kept are not resumed", "[conversion]") {
  const Sources sources;
  check_error(ErrorCode::kInvalidArgument,
              {"resume: the source is quantised already and keeps its codes; say scheme to quantise it again"}, [&] {
                convert::quantize(sources.quantised, sources.scratch / "x", {.keep_codes = true, .resume = true});
              });
  CHECK_FALSE(fs::exists(sources.scratch / "x.partial"));
}

TEST_CASE("conversion: the record spells options as the host does", "[conversion]") {
  const Sources sources;
  const auto kept = [&](const QuantizeOptions& options) {
    convert::quantize(sources.plain, sources.scratch / "x", options);
    return files::open_checkpoint(sources.scratch / "x").manifest.kept;
  };
  const auto in_cpp = kept({.keep = {"a"}, .overwrite = true});
  CHECK(in_cpp.at("a.weight") == "matched keep a");
  CHECK(in_cpp.at("lm_head.weight") == "the output head; quantised when head asks for it");
  constexpr Spelling kShouted{.option = [](Option option) { return "<" + std::string(name(option)) + ">"; },
                              .call = [](const OperationCall&) { return std::string(); }};
  const auto shouted = kept({.keep = {"a"}, .overwrite = true, .spelling = kShouted});
  CHECK(shouted.at("a.weight") == "matched <keep> a");
  CHECK(shouted.at("lm_head.weight") == "the output head; quantised when <head> asks for it");
}
