#include <halfbyte/evaluate_checkpoint.h>

#include <algorithm>
#include <memory>

#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>
#include <halfbyte/load_low_bit.h>

#include "loader/choice_tasks.h"
#include "loader/evaluated_text.h"
#include "loader/files/printable.h"
#include "loader/load_cost.h"
#include "loader/stored_logits.h"
#include "loader/worst_tokens.h"
#include "models/architectures/model_config.h"
#include "models/evaluation/evaluation.h"
#include "models/sessions/pass_watch.h"
#include "quant/operators/translate.h"

namespace halfbyte {
namespace {

namespace fs = std::filesystem;
using models::LogitSource;
using models::ModelLogits;
using models::Windows;

constexpr std::int64_t kUsualContext = 256;

std::uint64_t needed_bytes(const fs::path& path, const LoadOptions& options) {
  const files::LoadCost cost = files::load_cost(files::open_checkpoint(path), options);
  return cost.own_bytes() + cost.mapped_bytes();
}

class Run {
 public:
  explicit Run(const EvaluationRequest& request) : request_(request), text_(evaluated_text(request)) {
    out_.text_tokens = static_cast<std::int64_t>(text_.tokens.size());
    out_.special_names = text_.special.count;
    out_.special_example = text_.special.example;
    out_.original = files::printable_path(request.original);
    if (!request.tasks.empty()) tasks_ = read_choice_tasks(request.tasks, request.tasks_name);
  }

  Evaluation run() {
    if (!request_.logits.empty()) {
      if (!fs::exists(request_.logits)) record(request_.logits);
      compare_with(request_.logits);
    } else if (!request_.original.empty() && !fit_together()) {
      const files::TemporaryDirectory folder;
      has_temporary_ = true;
      record(folder.path() / "logits");
      compare_with(folder.path() / "logits");
    } else {
      side_by_side();
    }
    return std::move(out_);
  }

 private:
  bool fit_together() const {
    const std::uint64_t limit = request_.memory_limit > 0 ? request_.memory_limit : files::memory_bytes();
    return limit == 0 || needed_bytes(request_.checkpoint, request_.loading) +
                                 needed_bytes(request_.original, request_.original_loading) <=
                             limit;
  }

  // While there is a temporary folder to be removed, loading is waited for.
  Model load(const fs::path& path, const LoadOptions& options) const {
    const auto say = [&](bool is_loading) {
      if (request_.loading_now && !has_temporary_) request_.loading_now(is_loading);
    };
    say(true);
    Model model = load_low_bit(path, options);
    say(false);
    return model;
  }

  std::int64_t context_of(const Model& model) {
    if (request_.context > 0) return request_.context;
    const std::int64_t room = model.config().max_position_embeddings;
    return std::min(out_.context > 0 ? out_.context : kUsualContext, room);
  }

  // Of tokens that all passes together make, those before this one are done.
  PerplexityOptions options(std::int64_t pass) const {
    PerplexityOptions options;
    options.context = out_.context;
    options.windows = request_.windows;
    options.kind = request_.kind;
    options.stop = request_.stop;
    if (request_.progress && out_.passes_over_text == 1) options.progress = request_.progress;
    if (request_.progress && out_.passes_over_text == 2) {
      options.progress = [this, pass](std::int64_t done, std::int64_t total) {
        request_.progress(pass * total + done, 2 * total);
      };
    }
    return options;
  }

  Windows windows_for(const Model& model) const {
    return models::windows_for(model.module(), text_.tokens, text_.tokenizer->prefix(), options(0));
  }

  // Under its final name once it is whole.
  void record(const fs::path& path) {
    if (request_.original.empty()) {
      throw Error(ErrorCode::kNotFound, files::printable_path(path) + ": no file of log-probabilities there yet; say " +
                                            Option::kAgainst + " to have it written");
    }
    out_.passes_over_text = 2;
    const Model original = load(request_.original, request_.original_loading);
    out_.context = context_of(original);
    const Windows windows = windows_for(original);
    const fs::path unfinished = path.string() + ".part";
    try {
      const c10::InferenceMode guard;
      ModelLogits source(original.module());
      const std::int64_t vocab_size = original.config().vocab_size;
      RecordedLogits recorded(source, unfinished, windows, vocab_size,
                              fs::weakly_canonical(request_.original).string());
      models::run_through(windows, vocab_size, recorded, options(0));
      recorded.sync();
    } catch (const Error& error) {
      std::error_code ignored;
      if (error.code() != ErrorCode::kAlreadyExists) fs::remove(unfinished, ignored);
      throw;
    }
    files::rename_new(unfinished, path);
  }

  void compare_with(const fs::path& path) {
    StoredLogits original(path);
    check_same_original(original);
    out_.original = files::printable_path(original.header().made_of);
    if (request_.context == 0) out_.context = original.header().context;
    const Model model = load(request_.checkpoint, request_.loading);
    out_.context = context_of(model);
    const Windows windows = windows_for(model);
    original.check(windows, model.config().vocab_size);
    measure(model, windows, &original, 1);
    choose(model, nullptr);
  }

  void check_same_original(const StoredLogits& stored) const {
    if (request_.original.empty() || fs::weakly_canonical(request_.original) == stored.header().made_of) return;
    throw Error(ErrorCode::kInvalidArgument, files::printable_path(request_.logits) +
                                                 ": holds the log-probabilities of " +
                                                 files::printable_path(stored.header().made_of) + ", not of " +
                                                 files::printable_path(request_.original) + "; name another file");
  }

  void side_by_side() {
    const Model model = load(request_.checkpoint, request_.loading);
    out_.context = context_of(model);
    if (request_.original.empty()) {
      measure(model, windows_for(model), nullptr, 1);
      return choose(model, nullptr);
    }
    const Model original = load(request_.original, request_.original_loading);
    out_.context = context_of(original);
    models::check_vocabularies(model.module(), original.module());
    windows_for(original);  // what it has no room for
    ModelLogits theirs(original.module());
    measure(model, windows_for(model), &theirs, 2);
    choose(model, &original);
    if (!request_.wants_layers || out_.accuracy.was_stopped) return;
    out_.layers = layer_errors(model.module(), original.module(), text_.tokens, text_.tokenizer->prefix(), options(0));
  }

  // Between tasks it stops when asked to; what was done by then is the result.
  void choose(const Model& model, const Model* original) {
    if (tasks_.empty() || out_.accuracy.was_stopped) return;
    const c10::InferenceMode guard;
    const models::PassWatch watch(request_.stop);
    std::vector<TaskScore> ours, theirs;
    const auto chosen = [&](const Model& by, const ChoiceTask& task) {
      const std::int64_t room = by.config().max_position_embeddings;
      return score_of(task, models::log_likelihoods(by.module(), continuations_of(task, *text_.tokenizer, room)));
    };
    for (const ChoiceTask& task : tasks_) {
      if ((out_.accuracy.was_stopped = request_.stop.stop_requested())) break;
      const TaskScore score = chosen(model, task);
      if (original) theirs.push_back(chosen(*original, task));
      ours.push_back(score);
    }
    if (!ours.empty()) out_.choices = summary_of(tasks_, ours, theirs);
  }

  void measure(const Model& model, const Windows& windows, LogitSource* original, std::int64_t passes) {
    const c10::InferenceMode guard;
    ModelLogits ours(model.module());
    const std::int64_t vocab_size = model.config().vocab_size;
    const bool is_second = out_.passes_over_text == 2;
    out_.accuracy = models::measure(windows, vocab_size, ours, original, passes, options(is_second ? 1 : 0));
    if (original) {
      out_.worst = worst_tokens(out_.accuracy.scores, request_.worst_tokens, windows, *text_.tokenizer);
    }
  }

  const EvaluationRequest& request_;
  EvaluatedText text_;
  std::vector<ChoiceTask> tasks_;
  bool has_temporary_ = false;
  Evaluation out_;
};

}  // namespace

LoadOptions exact_loading() {
  LoadOptions options;
  options.dtype = DtypePolicy::float32();
  options.compute = ComputeMode::kFloat;
  return options;
}

Evaluation evaluate_checkpoint(const EvaluationRequest& request) {
  return translated([&] { return "evaluating " + files::printable_path(request.checkpoint); },
                    [&] { return Run(request).run(); });
}

}  // namespace halfbyte
