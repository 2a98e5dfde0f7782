// halfbyte inspect CKPT
#include <memory>
#include <string>
#include <vector>

#include "loader/files/checkpoint.h"
#include "tools/cli/errors.h"
#include "tools/cli/parse.h"
#include "tools/cli/policy.h"
#include "tools/verbs/inspect_output.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

struct Words {
  std::string checkpoint;
  bool tensors = false;
  std::string policy;
  std::vector<std::string> keep_float32;
  std::vector<std::string> dtype_for;
};

void print_cost(const Words& words, const files::Checkpoint& checkpoint, bool is_json) {
  const files::LoadCost cost = load_cost(checkpoint, {.dtype = DtypePolicy::parse(words.policy),
                                                      .keep_float32 = words.keep_float32,
                                                      .overrides = parse_overrides(words.dtype_for)});
  (is_json ? print_load_cost_json : print_load_cost)(checkpoint, cost);
}

ExitStatus run(const Words& words, const CommonOptions& common) {
  const files::Checkpoint checkpoint = files::open_checkpoint(words.checkpoint);
  if (words.policy.empty() && !words.keep_float32.empty()) throw UsageError("--keep-float32 goes with --policy");
  if (words.policy.empty() && !words.dtype_for.empty()) throw UsageError("--dtype-for goes with --policy");
  if (!words.policy.empty()) {
    print_cost(words, checkpoint, common.is_json);
    return ExitStatus::kDone;
  }
  const Inspection inspection = inspect(checkpoint);
  if (common.is_json) {
    print_inspection_json(words.checkpoint, checkpoint, inspection, words.tensors);
  } else {
    print_inspection(words.checkpoint, checkpoint, inspection, words.tensors);
  }
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_inspect(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  parser.add_checkpoint("CKPT", words->checkpoint, "model to read; only its headers are").required();
  parser.add_flag("--tensors", words->tensors, "list every tensor");
  parser
      .add_option("--policy", words->policy,
                  "say instead what loading under a dtype policy will cost (half, amp:bfloat16 ...)")
      .type_name("POLICY")
      .check(dtype_policy());
  parser.add_option("--keep-float32", words->keep_float32, "with --policy: tensors that stay float32; repeatable")
      .type_name("PATTERN")
      .repeatable();
  parser
      .add_option("--dtype-for", words->dtype_for,
                  "with --policy: another policy for some modules or tensors; repeatable")
      .type_name("PATTERN=POLICY")
      .check(policy_assignment())
      .repeatable();
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli
