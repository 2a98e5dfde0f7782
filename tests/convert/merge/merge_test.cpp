// Adapters made part of a checkpoint: values against a plain computation, what is quantised again and what is not, what
// the manifest says, what is refused, and a run that goes on.
#include <halfbyte/merge.h>

#include <nlohmann/json.hpp>

#include <halfbyte/quantize.h>

#include "loader/files/verify.h"
#include "tests/convert/merge/adapter_files.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::merge;
using convert::MergeOptions;
using convert::MergeSummary;
using convert::WeightedAdapter;
using files::open_checkpoint;

namespace {

const std::string kQueryWeight = kQuery.name + ".weight", kDownWeight = kDown.name + ".weight";

// scratch/src, plain, and adapters of it.
class Models {
 public:
  explicit Models(Dtype dtype = Dtype::kBfloat16) {
    write_checkpoint(scratch_ / "src", llama_tensors(true, dtype), llama_config());
    write_adapter(scratch_ / "lora", adapter_tensors({kQuery, kDown}), peft_config(3, 0.75));
    write_adapter(scratch_ / "half", adapter_tensors({kQuery}, Dtype::kFloat16), peft_config(3, 3));
    TestModule dora = kQuery;
    dora.has_magnitude = true;
    ordered_json config = peft_config(3, 3);
    config["use_dora"] = true;
    write_adapter(scratch_ / "dora", adapter_tensors({dora}), config);
  }
  fs::path operator/(const std::string& name) const { return scratch_ / name; }
  const fs::path& path() const { return scratch_.path(); }
  void pack(const std::string& scheme, bool nested = false) const {
    convert::quantize(scratch_ / "src", scratch_ / "packed",
                      {.scheme = scheme, .group_size = 32, .nested_scales = nested, .halfbyte_only = true});
  }
  MergeSummary merged(const std::string& source, const std::vector<WeightedAdapter>& adapters,
                      const MergeOptions& options = {}) const {
    return merge(scratch_ / source, adapters, scratch_ / "out", options);
  }
  // Of the result, and of the source before it.
  Values values(const std::string& name) const { return doubles_of(open_checkpoint(scratch_ / "out"), name); }
  Values before(const std::string& source, const std::string& name) const {
    return doubles_of(open_checkpoint(scratch_ / source), name);
  }
  nlohmann::json record() const { return *open_checkpoint(scratch_ / "out").manifest.conversion; }

 private:
  Scratch scratch_;
};

void check_near(const Values& found, const Values& wanted, double bound) {
  REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO(i << ": " << found[i] << " against " << wanted[i]);
    REQUIRE(std::abs(found[i] - wanted[i]) <= bound * std::max(1.0, std::abs(wanted[i])));
  }
}

// Half a unit in the last place, and float32's own errors.
double rounding_of(Dtype dtype) {
  return (dtype == Dtype::kBfloat16 ? std::ldexp(1, -9) : dtype == Dtype::kFloat16 ? std::ldexp(1, -12) : 0) + 1e-6;
}

}  // namespace

TEST_CASE("merge: the values are those of W + scaling * B A, rounded once, in every dtype", "[merge]") {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16}) {
    INFO(name(dtype));
    const Models models(dtype);
    const MergeSummary done = models.merged("src", {{models / "lora"}});
    CHECK(done.merged_tensors == 2);
    CHECK(done.result.quantized_tensors == 0);
    CHECK(done.change.value() > 0.1);
    const Values before = models.before("src", kDownWeight);
    check_near(models.values(kDownWeight), adapted(models / "lora", kDown, before, 0.25), rounding_of(dtype));
    CHECK(models.values("lm_head.weight") == models.before("src", "lm_head.weight"));
    CHECK(open_checkpoint(models / "out").find(kDownWeight)->dtype == dtype);
    CHECK(files::verify(open_checkpoint(models / "out")).findings.empty());
  }
}

TEST_CASE("merge: DoRA, and several adapters, each with its weight", "[merge]") {
  const Models models(Dtype::kFloat32);
  models.merged("src", {{models / "lora", 0.5}, {models / "dora", -2}, {models / "half"}});
  const Values w = models.before("src", kQueryWeight);
  TestModule decomposed = kQuery;
  decomposed.has_magnitude = true;
  const Values one = adapted(models / "lora", kQuery, w, 0.25), two = adapted(models / "dora", decomposed, w, 1);
  const Values three = adapted(models / "half", kQuery, w, 1);
  Values wanted = w;
  for (std::size_t i = 0; i < w.size(); ++i)
    wanted[i] += 0.5 * (one[i] - w[i]) - 2 * (two[i] - w[i]) + (three[i] - w[i]);
  check_near(models.values(kQueryWeight), wanted, 1e-5);
  const nlohmann::json adapters = models.record()["merge"]["adapters"];
  CHECK(adapters[1]["kind"] == "dora");
  CHECK(adapters[1]["weight"] == -2.0);
  CHECK(adapters[0]["name"] == "lora");
  CHECK(adapters[0]["xxh3_128"].get<std::string>().size() == 32);
}

TEST_CASE("merge: patterns of ranks and alphas hold for the modules that they name", "[merge]") {
  const Models models(Dtype::kFloat32);
  TestModule wide = kDown;
  wide.rank = 9;  // more rows of A than are read at once
  ordered_json config = peft_config(3, 3);
  config["rank_pattern"] = {{"down_proj", 9}};
  config["alpha_pattern"] = {{"layers.0.mlp.down_proj", 4.5}};
  write_adapter(models / "lora", adapter_tensors({kQuery, wide}), config);
  models.merged("src", {{models / "lora"}});
  check_near(models.values(kDownWeight), adapted(models / "lora", wide, models.before("src", kDownWeight), 0.5), 1e-5);
  check_near(models.values(kQueryWeight), adapted(models / "lora", kQuery, models.before("src", kQueryWeight), 1),
             1e-5);
}

// What is merged into its values and quantised as before is what quantize() makes of the merged plain checkpoint; the
// codes of all else are as they were.
TEST_CASE("merge: packed weights are packed again as they were", "[merge]") {
  for (const char* scheme : {"sym_int4", "asym_int4", "nf4", "sym_int8"}) {
    INFO(scheme);
    const Models models;
    models.pack(scheme);
    const MergeSummary done = models.merged("packed", {{models / "lora"}});
    CHECK(done.result.quantized_tensors == 2);
    CHECK(done.result.rel_rmse > 0);
    const files::Checkpoint packed = open_checkpoint(models / "packed"), out = open_checkpoint(models / "out");
    for (const files::TensorRecord& was : packed.manifest.tensors) {
      INFO(was.name);
      const files::TensorRecord& is = *out.manifest.find(was.name);
      CHECK(is.scheme == was.scheme);
      CHECK(is.group_size == was.group_size);
      CHECK(is.original_dtype == was.original_dtype);
      const bool is_merged = was.name == kQueryWeight || was.name == kDownWeight;
      CHECK((is.xxh3_128 == was.xxh3_128) == !is_merged);
    }
    CHECK(files::verify(out).findings.empty());
    const Values wanted = adapted(models / "lora", kDown, models.before("packed", kDownWeight), 0.25);
    const Values found = models.values(kDownWeight);
    double off = 0, size = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      off += std::pow(found[i] - wanted[i], 2);
      size += wanted[i] * wanted[i];
    }
    CHECK(std::sqrt(off / size) < 0.13);  // 0.10 at most, of nf4
    CHECK(models.record()["merge"]["tensors"][kDownWeight]["change"].get<double>() > 0);
    CHECK(models.record()["merge"]["base"]["conversion"]["scheme"] == scheme);
  }
}

TEST_CASE("merge: nested scales stay nested", "[merge]") {
  const Models models;
  models.pack("nf4", /*nested=*/true);
  models.merged("packed", {{models / "lora"}});
  const files::Checkpoint out = open_checkpoint(models / "out");
  const files::TensorRecord& record = *out.manifest.find(kDownWeight);
  CHECK(record.nested_offset.has_value());
}

TEST_CASE("merge: a plain checkpoint of a packed one, in the dtypes on record", "[merge]") {
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    const Models models(dtype);
    models.pack("sym_int4");
    const MergeSummary done = models.merged("packed", {{models / "lora"}}, {.dequantize = true});
    CHECK(done.rounding.value() < rounding_of(dtype));
    const files::Checkpoint out = open_checkpoint(models / "out");
    CHECK_FALSE(out.is_quantized());
    CHECK_FALSE(out.config->contains("quantization_config"));
    for (const files::StoredTensor& tensor : out.tensors) CHECK(tensor.dtype == dtype);
    const Values before = models.before("packed", kDownWeight);
    check_near(models.values(kDownWeight), adapted(models / "lora", kDown, before, 0.25), rounding_of(dtype));
    convert::dequantize(models / "packed", models / "plain");
    const std::string other = "model.layers.0.mlp.up_proj.weight";
    CHECK(models.values(other) == models.before("plain", other));
  }
}

TEST_CASE("merge: what cannot be merged is named, and nothing is written", "[merge]") {
  const Models models;
  models.pack("sym_int4");
  const auto check = [&](ErrorCode code, const std::vector<std::string>& parts,
                         const std::vector<TestModule>& modules) {
    write_adapter(models / "bad", adapter_tensors(modules), peft_config(3, 3));
    check_error(code, parts, [&] { models.merged("packed", {{models / "bad"}}); });
    CHECK_FALSE(fs::exists(models / "out"));
    CHECK_FALSE(fs::exists(models / "out.partial"));
  };
  check(ErrorCode::kInvalidArgument, {"bad", "no tensor", "\"model.layers.7.mlp.up_proj.weight\""},
        {{"model.layers.7.mlp.up_proj", 64, 32, 3}});
  check(ErrorCode::kInvalidArgument, {"bad", "down_proj", "32", "48"}, {{kDown.name, 32, 48, 3}});
  check_error(ErrorCode::kInvalidArgument, {"no adapter"}, [&] { models.merged("packed", {}); });
  check_error(ErrorCode::kInvalidArgument, {"finite"}, [&] {
    models.merged("packed", {{models / "lora", std::nan("")}});
  });
  check_error(ErrorCode::kNotFound, {"nowhere"}, [&] { models.merged("packed", {{models / "nowhere"}}); });
  check_error(ErrorCode::kInvalidArgument, {"lie within each other"},
              [&] { merge(models / "src", std::vector<WeightedAdapter>{{models / "lora"}}, models / "lora", {}); });
  write_text(models / "out" / "mine.txt", "x");
  check_error(ErrorCode::kAlreadyExists, {"out"}, [&] { models.merged("packed", {{models / "lora"}}); });
  CHECK(read_text(models / "out" / "mine.txt") == "x");
}

TEST_CASE("merge: a head that is the embedding too is not merged into", "[merge]") {
  const Models models;
  write_checkpoint(models / "tied", llama_tensors(/*has_head=*/false), llama_config(/*is_tied=*/true));
  write_adapter(models / "head", adapter_tensors({{"lm_head", 16, 32, 3}}), peft_config(3, 3));
  check_error(ErrorCode::kUnsupported, {"\"lm_head\"", "model.embed_tokens.weight"},
              [&] { models.merged("tied", {{models / "head"}}); });
}

TEST_CASE("merge: values that are infinite in the dtype on record are refused", "[merge]") {
  const Models models(Dtype::kFloat16);
  check_error(ErrorCode::kUnsupported, {"model.layers.0.", "too large for float16"}, [&] {
    models.merged("src", {{models / "lora", 1e8}});
  });
  CHECK_FALSE(fs::exists(models / "out"));
}

TEST_CASE("merge: goes on after a stop to the same bytes, and knows what is complete", "[merge]") {
  const Models models;
  models.pack("sym_int4");
  const std::vector<WeightedAdapter> adapters{{models / "lora"}};
  merge(models / "packed", adapters, models / "wanted", {.threads = 1});
  std::stop_source stop;
  MergeOptions options{.threads = 1, .resume = true, .stop = stop.get_token()};
  options.progress = [&, calls = 0](std::uint64_t, std::uint64_t) mutable {
    if (++calls == 6) stop.request_stop();
  };
  check_error(ErrorCode::kInterrupted, {"stopped"}, [&] { models.merged("packed", adapters, options); });
  REQUIRE(fs::exists(models / "out.partial"));
  check_error(ErrorCode::kInvalidArgument, {"another conversion"}, [&] {
    models.merged("packed", {{models / "lora", 2}}, {.resume = true});
  });
  const MergeSummary done = models.merged("packed", adapters, {.resume = true});
  CHECK(done.result.resumed_bytes > 0);
  CHECK(contents_of(models / "out") == contents_of(models / "wanted"));
  CHECK(models.merged("packed", adapters, {.resume = true}).result.was_complete);
  check_error(ErrorCode::kAlreadyExists, {"is not what this run would write"},
              [&] { models.merged("packed", {{models / "half"}}, {.resume = true}); });
}

TEST_CASE("merge: the bytes depend on neither threads nor memory", "[merge]") {
  const Models models;
  models.pack("nf4");
  const std::vector<WeightedAdapter> adapters{{models / "lora", 0.5}, {models / "dora"}};
  merge(models / "packed", adapters, models / "one", {.threads = 1});
  merge(models / "packed", adapters, models / "four", {.threads = 4, .memory_limit = std::uint64_t{64} << 20});
  CHECK(contents_of(models / "one") == contents_of(models / "four"));
}
