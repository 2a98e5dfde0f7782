#include "convert/memory.h"

#include <halfbyte/convert.h>

#include "loader/files/verify.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::quantize;

namespace {

constexpr std::uint64_t kSmall = 13'500'000;

files::Checkpoint open(const Scratch& scratch, const std::vector<TestTensor>& tensors) {
  write_checkpoint(scratch / "src", tensors);
  return files::open_checkpoint(scratch / "src");
}

convert::MemoryPlan plan_of(const files::Checkpoint& source, const convert::QuantizeOptions& options) {
  return convert::plan_memory(source, convert::plan(source, options), options);
}

}  // namespace

TEST_CASE("memory: bytes do not depend on the limit", "[convert]") {
  const std::vector<convert::QuantizeOptions> kinds = {
      {},
      {.scheme = "sym_int8", .group_size = 16},
      {.scheme = "asym_int4"},
      {.scheme = "nf4", .nested_scales = true},
  };
  for (convert::QuantizeOptions options : kinds) {
    INFO(options.scheme.value_or(convert::kDefaultScheme));
    const Scratch scratch;
    open(scratch, {float_tensor("wide.weight", {2, 300'000 / 64 * 64}), float_tensor("tall.weight", {700, 1024}),
                   float_tensor("kept", {1'000'003})});
    options.memory_limit = 1'000'000'000;
    quantize(scratch / "src", scratch / "large", options);
    options.threads = 3;
    options.memory_limit = kSmall;
    quantize(scratch / "src", scratch / "small", options);
    CHECK(contents_of(scratch / "small") == contents_of(scratch / "large"));
    CHECK(files::verify(files::open_checkpoint(scratch / "small")).findings.empty());
  }
}

TEST_CASE("memory: blocks shrink with the limit, end between groups, and cover a row in pieces", "[convert]") {
  const Scratch scratch;
  const auto source = open(scratch, {float_tensor("wide.weight", {2, 4'800'000}), float_tensor("a.weight", {3, 64})});
  const auto large = plan_of(source, {.threads = 1});
  const auto small = plan_of(source, {.threads = 1, .memory_limit = kSmall});
  CHECK(large.source_buffer == (std::uint64_t{512} << 10));  // and no more, however much is allowed
  CHECK(small.source_buffer < large.source_buffer);
  for (const auto& memory : {large, small}) {
    REQUIRE(memory.block_bytes.size() == 2);
    for (const std::uint64_t block : memory.block_bytes) CHECK(block % (64 * 2) == 0);
    CHECK(*std::ranges::max_element(memory.block_bytes) == memory.source_buffer);
  }
}

TEST_CASE("memory: too little is refused with what is enough", "[convert]") {
  const Scratch scratch;
  const auto source = open(scratch, {float_tensor("a.weight", {3, 64})});
  check_error(ErrorCode::kNoResources, {"1.00 MB", "needs", "give memory_limit"},
              [&] { plan_of(source, {.threads = 1, .memory_limit = 1'000'000}); });
  std::uint64_t least = 1'000'000;
  std::string advice;
  try {
    plan_of(source, {.threads = 1, .memory_limit = least});
  } catch (const Error& error) {
    advice = error.what();
  }
  least = 1'000'000 * std::stoull(advice.substr(advice.find("memory_limit ") + 13));
  CHECK_NOTHROW(plan_of(source, {.threads = 1, .memory_limit = least}));
  CHECK_THROWS_AS(plan_of(source, {.threads = 1, .memory_limit = least - 1'000'000}), Error);
}

TEST_CASE("memory: one scale for a row that does not fit is refused before anything is written", "[convert]") {
  const Scratch scratch;
  open(scratch, {float_tensor("a.weight", {4, 64}), float_tensor("wide.weight", {2, 1'000'000})});
  const convert::QuantizeOptions options{.group_size = kPerChannel, .threads = 2, .memory_limit = kSmall};
  check_error(ErrorCode::kNoResources,
              {"\"wide.weight\"", "1000000 weights", "13.50 MB", "give memory_limit", "group size"},
              [&] { quantize(scratch / "src", scratch / "dst", options); });
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"src"});
  // With room for one thread's tile, but not for two.
  const auto memory = plan_of(files::open_checkpoint(scratch / "src"),
                              {.group_size = kPerChannel, .threads = 2, .memory_limit = 150'000'000});
  CHECK(memory.threads == 1);
}

TEST_CASE("shards: of at most the size asked for, a tensor's parts together", "[convert]") {
  const Scratch scratch;
  write_checkpoint(scratch / "src", llama_tensors(), llama_config());
  quantize(scratch / "src", scratch / "whole");
  const auto whole = files::open_checkpoint(scratch / "whole");
  std::uint64_t largest = 0;
  for (const auto& record : whole.manifest.tensors) largest = std::max(largest, record.size_bytes);
  for (const std::uint64_t size : {std::uint64_t{1}, largest, largest * 2, std::uint64_t{1} << 40}) {
    INFO("shard size " << size);
    quantize(scratch / "src", scratch / "split", {.shard_size = size, .overwrite = true});
    const auto split = files::open_checkpoint(scratch / "split");
    CHECK(files::verify(split).findings.empty());
    std::vector<std::uint64_t> bytes(split.data_files.size());
    for (const auto& record : split.manifest.tensors) {
      const std::size_t file = split.find(record.parts[files::Part::kCodes])->file;
      bytes[file] += record.size_bytes;
      for (const std::string& part : record.parts.names) CHECK((part.empty() || split.find(part)->file == file));
      CHECK(record.xxh3_128 == whole.manifest.find(record.name)->xxh3_128);
    }
    for (const std::uint64_t each : bytes) CHECK((each <= std::max(size, largest) && each > 0));
    if (size == 1) CHECK(bytes.size() == split.manifest.tensors.size());
    if (size > whole.size_bytes) CHECK(bytes.size() == 1);
  }
}
