// What ranks that train together write, and go on from.
#include <halfbyte/finetune.h>

#include <algorithm>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <halfbyte/convert.h>
#include <halfbyte/error.h>

#include "tests/catch.h"
#include "tests/loader/files/scratch.h"
#include "tests/models/parallel/ranks.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

namespace fs = std::filesystem;
using convert::FinetuneOptions;
using convert::FinetuneSummary;
using convert::TrainingMethod;
using convert::TrainingOptimizer;
using testing::Scratch;

const fs::path kText = tests::data("heldout.txt");

FinetuneOptions few_steps() {
  FinetuneOptions out;
  out.lora.rank = 2;
  out.steps = 5;
  out.batch = 3;
  out.context = 16;
  out.learning_rate = 1e-2;
  out.save_every = 2;
  out.dtype = DtypePolicy::float32();
  return out;
}

std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::directory_iterator(folder))
    out[entry.path().filename().string()] = testing::read_text(entry.path());
  return out;
}

// As many ranks' work, of which rank 0 has seen every step.
std::vector<FinetuneSummary> by_ranks(int size, const fs::path& checkpoint, const fs::path& out,
                                      const FinetuneOptions& options) {
  std::vector<FinetuneSummary> all(static_cast<std::size_t>(size));
  tests::Ranks(size).run([&](const std::shared_ptr<Group>& group) {
    FinetuneOptions own = options;
    own.group = group;
    if (group->rank() > 0) own.on_step = {};
    all[static_cast<std::size_t>(group->rank())] = convert::finetune(checkpoint, kText, out, own);
  });
  return all;
}

void check_near(const std::vector<double>& found, const std::vector<double>& wanted) {
  REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(found[i] == Approx(wanted[i]).epsilon(1e-5));
}

void check_same(const FinetuneSummary& a, const FinetuneSummary& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.evaluations == b.evaluations);
  CHECK(a.steps == b.steps);
  CHECK(a.was_stopped == b.was_stopped);
}

// Stops all ranks when rank 0 has done some steps.
FinetuneOptions stopped_after(std::int64_t steps, FinetuneOptions options, std::stop_source& stop) {
  options.stop = stop.get_token();
  options.on_step = [steps, &stop](const convert::FinetuneStep& step) {
    if (step.step == steps) stop.request_stop();
  };
  return options;
}

// To the same bytes as without a break.
void check_resumes(int size, const fs::path& checkpoint, const FinetuneOptions& options) {
  const Scratch scratch;
  const auto whole = by_ranks(size, checkpoint, scratch / "whole", options);
  std::stop_source stop;
  FinetuneOptions some = stopped_after(3, options, stop);
  for (const FinetuneSummary& each : by_ranks(size, checkpoint, scratch / "out", some)) {
    CHECK(each.was_stopped);
    CHECK(each.steps == 3);
  }
  CHECK_FALSE(fs::exists(scratch / "out"));
  FinetuneOptions resumed = options;
  resumed.resume = true;
  for (const FinetuneSummary& each : by_ranks(size, checkpoint, scratch / "out", resumed)) {
    CHECK(each.resumed == 3);
    check_same(each, whole[0]);
  }
  CHECK(contents(scratch / "out") == contents(scratch / "whole"));
  CHECK_FALSE(fs::exists(scratch / "out.partial"));
}

std::string refusal(int size, const fs::path& checkpoint, const fs::path& out, const FinetuneOptions& options) {
  try {
    size > 1 ? static_cast<void>(by_ranks(size, checkpoint, out, options))
             : static_cast<void>(convert::finetune(checkpoint, kText, out, options));
    return "none";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("ranks write what the first of them learnt, with one process's losses", "[training][ranks]") {
  const Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "packed", {.scheme = "sym_int4"});
  FinetuneOptions options = few_steps();
  options.evaluation = scratch / "evaluation";
  testing::write_text(options.evaluation, testing::read_text(kText).substr(0, 500));
  options.evaluate_every = 2;
  const FinetuneSummary alone = convert::finetune(scratch / "packed", kText, scratch / "alone", options);
  for (const int size : {2, 3}) {
    const fs::path out = scratch / ("ranks" + std::to_string(size));
    const auto all = by_ranks(size, scratch / "packed", out, options);
    for (const FinetuneSummary& each : all) check_same(each, all[0]);
    check_near(all[0].losses, alone.losses);
    REQUIRE(all[0].evaluations.size() == 3);
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(all[0].evaluations[i].second == Approx(alone.evaluations[i].second).epsilon(1e-5));
    CHECK(all[0].tokens == alone.tokens);
    CHECK(contents(out).size() == contents(scratch / "alone").size());
    CHECK_FALSE(fs::exists(out.string() + ".partial"));
  }
}

TEST_CASE("ranks go on to the same bytes as without a break", "[training][ranks]") {
  FinetuneOptions options = few_steps();
  options.lora.dropout = 0.2;
  check_resumes(2, tests::data("tiny-llama"), options);
  options.method = TrainingMethod::kFull;
  options.lora = {};
  options.optimizer = TrainingOptimizer::kAdamW8bit;
  options.has_bfloat16_masters = true;
  options.dtype = DtypePolicy::amp(Dtype::kFloat16);
  check_resumes(3, tests::data("tiny-llama"), options);
}

TEST_CASE("ranks draw weights once", "[training][ranks]") {
  const Scratch scratch;
  FinetuneOptions options = few_steps();
  options.method = TrainingMethod::kFull;
  options.begins_anew = true;
  options.steps = 2;
  const FinetuneSummary alone = convert::finetune(tests::data("tiny-llama"), kText, scratch / "alone", options);
  check_near(by_ranks(2, tests::data("tiny-llama"), scratch / "two", options)[1].losses, alone.losses);
  CHECK(contents(scratch / "two").size() == contents(scratch / "alone").size());
}

TEST_CASE("what ranks would not go on from to the same bits is refused", "[training][ranks]") {
  const Scratch scratch;
  const fs::path model = tests::data("tiny-llama");
  std::stop_source stop;
  by_ranks(2, model, scratch / "out", stopped_after(2, few_steps(), stop));
  FinetuneOptions resumed = few_steps();
  resumed.resume = true;
  CHECK_THAT(refusal(1, model, scratch / "out", resumed), Catch::Contains("another number of ranks (2, now 1)"));
  CHECK_THAT(refusal(3, model, scratch / "out", resumed), Catch::Contains("another number of ranks (2, now 3)"));
  CHECK_THAT(refusal(2, model, scratch / "out", few_steps()), Catch::Contains("steps of a training that was stopped"));
  CHECK(fs::exists(scratch / "out.partial"));
  CHECK(by_ranks(2, model, scratch / "out", resumed)[1].resumed == 2);
}

TEST_CASE("ranks with other options are refused by name", "[training][ranks]") {
  const Scratch scratch;
  std::vector<std::string> said(2);
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& group) {
    FinetuneOptions own = few_steps();
    own.group = group;
    if (group->rank() == 1) own.learning_rate = 0.5;
    try {
      convert::finetune(tests::data("tiny-llama"), kText, scratch / "out", own);
    } catch (const Error& error) {
      said[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  for (const std::string& each : said)
    CHECK(each == "rank 1 trains otherwise than rank 0: lr 0.5; there it is lr 0.01");
  CHECK(fs::is_empty(scratch.path()));
}

}  // namespace halfbyte
