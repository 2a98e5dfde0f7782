#include "tools/model/model_options.h"

#include <halfbyte/adapter.h>
#include <halfbyte/leading.h>

#include "loader/thread_count.h"
#include "tools/cli/errors.h"
#include "tools/cli/platform.h"
#include "tools/cli/sudden_ends.h"
#include "tools/cli/weighted_adapter.h"
#include "tools/model/launched_group.h"

namespace halfbyte::cli {

std::shared_ptr<const void> beside(const Model& model, const std::vector<std::string>& adapters) {
  if (adapters.empty()) return nullptr;
  if (launched_group())
    throw UsageError("--adapter is not for ranks, which have parts of the products; merge it first (`halfbyte merge`)");
  return convert::Adapters(model, weighted_adapters<convert::WeightedAdapter>(adapters)).enter();
}

Model load_model(const ModelWords& words, const CommonOptions&) {
  check_room_left();
  if (words.threads > 0) set_thread_count(words.threads);
  LoadOptions options = load_options(words);
  options.group = launched_group();
  options.pipeline = launched_pipeline();
  options.reduce_dtype = launched_reduce_dtype();
  Model model = load_low_bit(words.checkpoint, options);
  check_room_left();
  log_load(words, model.report(), model.config());
  return model;
}

ExitStatus follow_first_rank(const ModelWords& words, const CommonOptions& common) {
  const InterruptWatch interrupt;  // before OpenMP's threads
  const Model model = load_model(words, common);
  follow(model.module());
  return ExitStatus::kDone;
}

}  // namespace halfbyte::cli
