// Ranks that have parts of a model give what the whole gives: in every family.
#include "tests/catch.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "tests/models/parallel/given.h"
#include "tests/models/parallel/ranks.h"
#include "tests/models/training/trained_family.h"
#include "tests/places.h"

namespace halfbyte {

using tests::check_ranks;
using tests::Given;
using tests::given_by;
using tests::given_by_ranks;

namespace {

std::filesystem::path packed(const tests::Scratch& scratch, const convert::QuantizeOptions& options) {
  const std::filesystem::path out = scratch / "packed";
  convert::QuantizeOptions own = options;
  own.overwrite = true;
  own.halfbyte_only = true;
  convert::quantize(tests::data("tiny-llama"), out, own);
  return out;
}

}  // namespace

TEST_CASE("ranks: every family's logits and greedy tokens are those of one process", "[ranks]") {
  for (const auto& path : tests::all_families()) {
    for (const int size : {2, 4}) check_ranks(path, size, {.dtype = DtypePolicy::float32()}, 2e-4);
  }
}

TEST_CASE("ranks: what is divided, and where heads do not suffice", "[ranks]") {
  const auto said = [](const char* family, int size) {
    return given_by_ranks(tests::data("families") / family, size, {.dtype = DtypePolicy::float32()})[0].note;
  };
  CHECK(said("llama2", 2)
            .starts_with("rank 0 of 2: of 2 layers the attention of 2 and the MLP of 2 are divided, and the head; all "
                         "else is whole"));
  CHECK(said("deepseek-v3", 2).find("the attention of 0 ") != std::string::npos);
  CHECK(said("olmo2", 2).find("the attention of 0 ") != std::string::npos);  // one norm for all heads
}

TEST_CASE("ranks: every scheme", "[ranks]") {
  const tests::Scratch scratch;
  for (const Scheme& scheme : schemes()) {
    for (const std::int64_t group : {std::int64_t{32}, std::int64_t{kPerChannel}}) {
      if (group == kPerChannel && scheme.bits != 8) continue;
      INFO(scheme.name << " in groups of " << group);
      const auto path = packed(scratch, {.scheme = std::string(scheme.name),
                                         .group_size = has_row_scales(scheme) ? scheme.default_group : group});
      check_ranks(path, 2, {.dtype = DtypePolicy::float32()}, 2e-4);
    }
  }
}

TEST_CASE("ranks: every policy, with the kernels that it takes", "[ranks]") {
  const tests::Scratch scratch;
  const auto path = packed(scratch, {});
  for (const char* policy : {"amp:bfloat16", "amp:float16", "bfloat16", "float32"}) {
    INFO(policy);
    const Given wanted = given_by(load_low_bit(path, {.dtype = DtypePolicy::parse(policy)}));
    const auto found = given_by_ranks(path, 2, {.dtype = DtypePolicy::parse(policy)});
    CHECK(found[0].logits.equal(found[1].logits));
    const double size = wanted.logits.norm().item<double>();
    CHECK((found[0].logits - wanted.logits).norm().item<double>() < 0.02 * size);
  }
}

TEST_CASE("ranks: other checkpoints and policies are refused by name", "[ranks]") {
  const tests::Scratch scratch;
  const auto path = packed(scratch, {});
  std::vector<std::string> said(2);
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& group) {
    LoadOptions options{.group = group};
    if (group->rank() == 1) options.dtype = DtypePolicy::float32();
    try {
      load_low_bit(path, options);
    } catch (const Error& error) {
      said[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  for (const std::string& each : said) {
    INFO(each);
    CHECK(each.find("rank 1 runs another thing than rank 0") != std::string::npos);
    CHECK(each.find("policy float32") != std::string::npos);
  }
}

}  // namespace halfbyte
