#include "models/cpu/module_forward.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "models/cpu/forward.h"
#include "models/cpu/fusible.h"
#include "models/cpu/module_experts.h"
#include "models/cpu/module_views.h"
#include "models/modules/decoder.h"
#include "models/profile/recorder.h"
#include "quant/operators/translate.h"

namespace halfbyte::models::cpu {
namespace {

// The layers of a decoder.
class DecoderParts final : public ModuleParts {
 public:
  DecoderParts(const Decoder& decoder, const at::Tensor& ids, std::span<const StepRow> rows, ExpertsWork& experts)
      : decoder_(decoder),
        ids_(ids),
        rows_(rows),
        hidden_(decoder.hidden_size()),
        count_(ids.numel()),
        experts_(experts) {}

  void mix(std::size_t layer, float* normalised, float* out) override {
    const WorkScope work(WorkKind::kModules);
    for (const Part& part : parts())
      of_part(out, part).copy_(at(layer).mixer().forward(of_part(normalised, part), part.pass));
  }

  void feed_forward(std::size_t layer, float* normalised, Buffer& out, const ProductsView* next) override {
    const FeedForward& module = at(layer).feed_forward();
    const auto* experts = dynamic_cast<const MixtureOfExperts*>(&module);
    if (experts && has_form(*experts) && run_experts(ModuleExperts(*experts), normalised, count_, experts_, out, next))
      return;
    const WorkScope work(WorkKind::kModules);
    of_all(out.floats(count_ * hidden_)).copy_(module.forward(of_all(normalised)));
  }

  void complete(std::size_t layer, float* stream) override {
    const WorkScope work(WorkKind::kModules);
    for (const Part& part : parts()) {
      const at::Tensor x = of_part(stream, part);
      x.copy_(at(layer).completed(x, part.pass));
    }
  }

  void run(std::size_t layer, const std::function<void()>& work) override {
    const auto attempt = [&] {
      return decoder_.path() + "." + std::to_string(decoder_.first_layer() + static_cast<std::int64_t>(layer)) +
             ", given " + std::to_string(count_) + " tokens";
    };
    translated(attempt, work);
  }

 private:
  // Rows of equally many tokens, as modules take them.
  struct Part {
    std::int64_t first;  // of the tokens
    Pass pass;
  };

  const DecoderLayer& at(std::size_t layer) const { return *decoder_.layers()[layer]; }

  // Made when the first module needs them.
  std::span<const Part> parts() {
    if (!parts_.empty()) return parts_;
    for (const EqualRows& equal : equal_rows(rows_)) {
      std::vector<Session*> sessions = sessions_of(rows_, equal);
      const auto rows = static_cast<std::int64_t>(sessions.size());
      const at::Tensor ids = ids_.narrow(0, equal.first, rows * equal.tokens).view({rows, equal.tokens});
      parts_.push_back({equal.first, decoder_.has_layer_inputs()
                                         ? decoder_.begin(ids, std::move(sessions)).pass
                                         : decoder_.make_pass(std::move(sessions), equal.tokens, at::kCPU)});
    }
    return parts_;
  }

  // Shape: (tokens of all rows, hidden_size) -> (rows, tokens, hidden_size).
  at::Tensor of_part(float* values, const Part& part) const {
    return at::from_blob(values + part.first * hidden_, {part.pass.rows, part.pass.tokens, hidden_}, at::kFloat);
  }
  at::Tensor of_all(float* values) const { return at::from_blob(values, {1, count_, hidden_}, at::kFloat); }

  const Decoder& decoder_;
  const at::Tensor& ids_;
  std::span<const StepRow> rows_;
  std::int64_t hidden_, count_;  // tokens of all rows
  ExpertsWork& experts_;
  std::vector<Part> parts_;
};

}  // namespace

std::optional<at::Tensor> forward(const Decoder& decoder, const at::Tensor& tokens, std::span<const StepRow> rows,
                                  const at::Tensor& input) {
  if (!is_fusible(decoder, tokens, input) || !rows.front().session->is_on_cpu()) return std::nullopt;
  const Workspaces::Lease workspace(decoder.workspaces());
  if (!view(decoder, (*workspace).model)) return std::nullopt;
  decoder.workspaces().note_pass();
  DecoderParts parts(decoder, tokens, rows, (*workspace).experts);
  const std::span ids(tokens.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(tokens.numel()));
  at::Tensor out = at::empty({tokens.numel(), decoder.hidden_size()}, at::kFloat);
  forward(*workspace, {ids, rows, input.defined() ? input.const_data_ptr<float>() : nullptr}, &parts,
          out.mutable_data_ptr<float>());
  return out;
}

}  // namespace halfbyte::models::cpu
