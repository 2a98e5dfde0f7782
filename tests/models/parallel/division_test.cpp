// Ranks that have parts of a model give what the whole gives: in every family.
#include "tests/catch.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "models/architectures/model_config.h"
#include "models/modules/tensor_source.h"
#include "models/parallel/division.h"
#include "models/parallel/slices.h"
#include "tests/models/parallel/given.h"
#include "tests/models/parallel/ranks.h"
#include "tests/models/random_source.h"
#include "tests/models/training/trained_family.h"
#include "tests/places.h"

namespace halfbyte {

using tests::check_ranks;
using tests::Given;
using tests::given_by;
using tests::given_by_ranks;
using tests::Values;

namespace {

// Experts and latent attentions: what ranks have is together what one process has, and no rank has all.
void check_values(const std::vector<Given>& found, const Values& wanted) {
  Values all;
  for (const Given& each : found) {
    all.experts += each.values.experts;
    all.shared += each.values.shared;
    all.latent += each.values.latent;
    CHECK((wanted.experts == 0 || each.values.experts < wanted.experts));
  }
  CHECK(all.experts == wanted.experts);
  CHECK(all.shared == wanted.shared);
  CHECK(all.latent == wanted.latent);
}

Values values_of(const std::filesystem::path& path) {
  return tests::values_of(load_low_bit(path, {.dtype = DtypePolicy::float32()}).module());
}

std::filesystem::path packed(const tests::Scratch& scratch, const convert::QuantizeOptions& options,
                             const char* family = "tiny-llama") {
  const std::filesystem::path out = scratch / "packed";
  convert::QuantizeOptions own = options;
  own.overwrite = true;
  own.halfbyte_only = true;
  convert::quantize(tests::data(family), out, own);
  return out;
}

}  // namespace

TEST_CASE("ranks: every family's logits and greedy tokens are those of one process", "[ranks]") {
  for (const auto& path : tests::all_families()) {
    for (const int size : {2, 4})
      check_values(check_ranks(path, size, {.dtype = DtypePolicy::float32()}, 2e-4), values_of(path));
  }
}

TEST_CASE("ranks: packed experts and latent attentions", "[ranks]") {
  const tests::Scratch scratch;
  for (const char* family :
       {"families/qwen3.5-moe", "families/deepseek-v3", "families/gpt-oss", "families/granitemoe"}) {
    for (const char* scheme : {"sym_int4", "nf4", "asym_int4"}) {
      const auto path = packed(scratch, {.scheme = scheme, .group_size = 32}, family);
      INFO(family << " in " << scheme);
      check_values(check_ranks(path, 2, {.dtype = DtypePolicy::float32()}, 2e-4), values_of(path));
    }
  }
}

TEST_CASE("ranks: experts of too few groups are divided one by one, unevenly too", "[ranks]") {
  const tests::Scratch scratch;
  for (const char* family : {"families/mixtral", "families/granitemoe", "families/phimoe", "families/minimax-m2"}) {
    for (const char* scheme : {"sym_int4", "nf4"}) {
      const auto path = packed(scratch, {.scheme = scheme, .group_size = 128}, family);  // 2 groups, 4 experts
      INFO(family << " in " << scheme);
      const auto found = check_ranks(path, 3, {.dtype = DtypePolicy::float32()}, 2e-4);
      check_values(found, values_of(path));
      CHECK(found[0].values.most_experts == 1);
      CHECK(found[2].values.most_experts == 2);
    }
  }
  const auto path = packed(scratch, {.scheme = "sym_int4", .group_size = 64}, "families/gpt-oss");  // with biases
  check_values(check_ranks(path, 3, {.dtype = DtypePolicy::float32()}, 2e-4), values_of(path));
}

TEST_CASE("ranks: experts with an order of columns are divided one by one, and whole beside an MLP with one",
          "[ranks]") {
  const auto config = load_low_bit(tests::data("families/qwen3.5-moe"), {.dtype = DtypePolicy::float32()}).config();
  tests::RandomSource source(config);
  models::ModelWeights weights = models::gather_weights(config, source);
  const auto reorder = [](models::WeightSet& modules, models::ModuleName down) {
    models::LinearWeights own = modules.linear(down);
    LowBitTensor packed;
    packed.scheme = find_scheme("sym_int4");
    packed.in_features = models::columns(own);
    packed.group_size = 32;
    packed.codes = at::empty({1, 1}, at::kInt);
    packed.scales = at::empty({1, 1});
    packed.column_order = at::arange(packed.in_features);
    own.weight = packed;
    modules.replace(down, own);
  };
  models::LayerWeights& layer = weights.layers[0];
  for (models::WeightSet& expert : layer.experts) reorder(expert, &models::Naming::expert_down);
  for (const int rank : {0, 1, 2}) {
    const models::LayerDivision part = models::divide(config, weights, rank, 3).layers[0];
    CHECK(part.experts.size() == (rank == 2 ? 2 : 1));
    CHECK(part.expert_inner.size() == 0);
    CHECK(part.shared_inner.size() > 0);
  }
  CHECK(models::divide(config, weights, 0, 3).layers[1].expert_inner.size() > 0);
  reorder(layer.modules, &models::Naming::shared_down);
  CHECK_FALSE(models::divide(config, weights, 0, 3).layers[0].has_feed_forward());
}

TEST_CASE("ranks: fewer experts and groups than ranks are whole in each", "[ranks]") {
  const tests::Scratch scratch;
  const auto path = packed(scratch, {.scheme = "sym_int4", .group_size = 128}, "families/mixtral");
  const auto found = check_ranks(path, 5, {.dtype = DtypePolicy::float32()}, 2e-4);
  CHECK(found[4].note.find("the experts of 0 ") != std::string::npos);
  CHECK(found[4].values == values_of(path));
}

TEST_CASE("ranks: what is divided, and where heads do not suffice", "[ranks]") {
  const auto said = [](const char* family, int size) {
    return given_by_ranks(tests::data("families") / family, size, {.dtype = DtypePolicy::float32()})[0].note;
  };
  CHECK(said("llama2", 2)
            .starts_with("rank 0 of 2: of 2 layers the attention of 2 and the MLP of 2 are divided, and the head; all "
                         "else is whole"));
  CHECK(said("deepseek-v3", 2)
            .starts_with("rank 0 of 2: of 2 layers the attention of 2, the MLP of 1 and the experts "
                         "of 1 are divided, and the head; all else is whole"));
  CHECK(said("gemma4-moe", 4).find("the MLP of 6 and the experts of 6 ") != std::string::npos);  // side by side
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
  for (const char* model : {"tiny-llama", "families/mixtral", "families/deepseek-v3"}) {
    const auto path = packed(scratch, {.group_size = 32}, model);
    for (const char* policy : {"amp:bfloat16", "amp:float16", "bfloat16", "float32"}) {
      INFO(model << " under " << policy);
      const Given wanted = given_by(load_low_bit(path, {.dtype = DtypePolicy::parse(policy)}));
      const auto found = given_by_ranks(path, 2, {.dtype = DtypePolicy::parse(policy)});
      CHECK(found[0].logits.equal(found[1].logits));
      const double size = wanted.logits.norm().item<double>();
      CHECK((found[0].logits - wanted.logits).norm().item<double>() < 0.02 * size);
    }
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

TEST_CASE("ranks: copies of a checkpoint without hashes are the same, whenever they were made", "[ranks]") {
  const tests::Scratch scratch;
  const auto path = [&](int rank) { return scratch / (rank == 0 ? "here" : "there"); };
  for (const int rank : {0, 1}) {
    std::filesystem::copy(tests::data("families") / "llama2", path(rank));
    for (const auto& file : std::filesystem::directory_iterator(path(rank)))
      std::filesystem::last_write_time(file.path(), std::filesystem::file_time_type() + std::chrono::hours(rank));
  }
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& group) {
    LoadOptions options{.dtype = DtypePolicy::float32()};
    options.group = group;
    load_low_bit(path(group->rank()), options);
  });
}

}  // namespace halfbyte
