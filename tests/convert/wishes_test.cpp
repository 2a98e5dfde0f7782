#include "convert/wishes.h"

#include <nlohmann/json.hpp>

#include "tests/convert/described.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::Plan;
using convert::QuantizeOptions;

TEST_CASE("wishes: tied tensors that are asked for by their roles", "[plan][wishes]") {
  const std::string name = "model.embed_tokens.weight";
  for (const bool is_stored : {false, true}) {
    const auto source = described(llama_tensors(is_stored), llama_config(true));
    for (const QuantizeOptions& options : {QuantizeOptions{.halfbyte_only = true, .embedding = "sym_int8"},
                                           QuantizeOptions{.halfbyte_only = true, .head = "sym_int8"}}) {
      const Plan plan = convert::plan(source, options);
      CHECK(of(plan, source, name).scheme == find_scheme("sym_int8"));
      REQUIRE(plan.notes.size() == 2);
      CHECK(plan.notes[0].str() == std::string(options.head ? "head" : "embedding") +
                                       " sym_int8 is for the embedding and the head: in this model they are one "
                                       "tensor (model.embed_tokens.weight)");
      CHECK_FALSE(plan.has_foreign_readers);
    }
    const QuantizeOptions same{.halfbyte_only = true, .embedding = "hb4", .head = "hb4"};
    CHECK(of(convert::plan(source, same), source, name).scheme == find_scheme("hb4"));
    CHECK(convert::plan(source, same).notes.size() == 1);
    check_error(ErrorCode::kInvalidArgument,
                {"embedding sym_int8 and head keep", "is its embedding (model.embed_tokens.weight)"},
                [&] { convert::plan(source, {.halfbyte_only = true, .embedding = "sym_int8", .head = "keep"}); });
  }
}

TEST_CASE("wishes: an embedding or a head that cannot be had", "[plan][wishes]") {
  const auto source = described(llama_tensors(), llama_config());
  check_error(ErrorCode::kInvalidArgument, {"a packed embedding: no other program reads that; add halfbyte_only"},
              [&] { convert::plan(source, {.embedding = "sym_int8"}); });
  check_error(ErrorCode::kInvalidArgument, {"scheme \"sym_int9\" is not known"},
              [&] { convert::plan(source, {.embedding = "sym_int9"}); });
  check_error(ErrorCode::kUnsupported,
              {"scheme_for *embed* names nothing that can be quantised", "an embedding, which embedding packs"},
              [&] { convert::plan(source, {.scheme_for = {{"*embed*", "sym_int8"}}}); });
  const auto bare = described({{"l.weight", "BF16", {4, 64}, std::string(512, '\1')}});
  check_error(ErrorCode::kInvalidArgument, {"embedding sym_int8: no tensor of ", " is known to be an embedding"},
              [&] { convert::plan(bare, {.embedding = "sym_int8"}); });
  check_error(ErrorCode::kInvalidArgument, {"head keep: no tensor of ", " is known to be an output head"},
              [&] { convert::plan(bare, {.head = "keep"}); });
  const auto doubles = described({{"wte.weight", "F64", {1, 64}, std::string(512, '\1')}});
  check_error(ErrorCode::kUnsupported,
              {"embedding sym_int8 names nothing that can be quantised", "wte.weight", "float64"},
              [&] { convert::plan(doubles, {.halfbyte_only = true, .embedding = "sym_int8"}); });
}

TEST_CASE("wishes: what is packed already keeps its codes, or is quantised again", "[plan][wishes]") {
  const Scratch scratch;
  write_checkpoint(scratch / "src", llama_tensors(), llama_config());
  convert::quantize(scratch / "src", scratch / "packed",
                    {.halfbyte_only = true, .keep = {"q_proj"}, .embedding = "sym_int8"});
  const auto packed = files::open_checkpoint(scratch / "packed");
  CHECK(packed.manifest.conversion->at("embedding") == "sym_int8");
  CHECK_FALSE(packed.manifest.conversion->contains("head"));
  check_error(
      ErrorCode::kUnsupported,
      {"embedding hb4 names nothing that can be quantised", "embed_tokens", "is sym_int8 already and keeps its"},
      [&] { convert::plan(packed, {.halfbyte_only = true, .embedding = "hb4", .keep_packed = true}); });
  convert::quantize(scratch / "packed", scratch / "again",
                    {.halfbyte_only = true, .embedding = "sym_int4", .keep_codes = true});
  CHECK(files::open_checkpoint(scratch / "again").manifest.find("model.embed_tokens.weight")->scheme ==
        find_scheme("sym_int4"));
  convert::quantize(scratch / "packed", scratch / "same", {.keep_codes = true});
  CHECK(files::open_checkpoint(scratch / "same").manifest.find("model.embed_tokens.weight")->xxh3_128 ==
        packed.manifest.find("model.embed_tokens.weight")->xxh3_128);
}
