#include <halfbyte/layer_errors.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>

#include "models/evaluation/evaluation.h"
#include "models/modules/decoder.h"
#include "models/modules/tap.h"
#include "models/sessions/pass_watch.h"
#include "models/sessions/session.h"
#include "quant/operators/translate.h"

namespace halfbyte {
namespace models {
namespace {

constexpr std::int64_t kHeadRows = 128;  // of a window: a row of logits is large

// Of differences from the original.
struct Squares {
  double difference = 0, original = 0;

  void add(const at::Tensor& found, const at::Tensor& wanted) {
    difference += found.sub(wanted).square().sum(at::kDouble).item<double>();
    original += wanted.square().sum(at::kDouble).item<double>();
  }
  double relative() const { return original > 0 ? std::sqrt(difference / original) : difference > 0 ? 1 : 0; }
};

struct Line {
  LayerError error;
  Squares alone, together;
};

struct Seen {
  at::Tensor input, result;
};

// One of the two models, in the middle of a window.
struct Side {
  const CausalLM& model;
  Session session;
  Decoder::Begun begun;
  at::Tensor stream;

  Side(const CausalLM& of, const at::Tensor& tokens)
      : model(of),
        session(of.make_session()),
        begun(of.decoder().begin(tokens.to(of.device()), {&session})),
        stream(begun.stream) {}

  at::Tensor layer(std::size_t index, const at::Tensor& input) {
    return model.decoder().layers()[index]->forward(input, begun.pass);
  }
  at::Tensor normalised() const {
    const Norm* norm = model.decoder().norm();
    return (norm ? norm->forward(stream) : stream).slice(1, 0, kHeadRows);
  }
};

class Comparison {
 public:
  Comparison(const CausalLM& model, const CausalLM& original) : model_(model), original_(original) {
    for (const auto& item : model.named_modules()) {
      if (const auto* linear = dynamic_cast<const Linear*>(item.value().get())) linears_[linear->path()] = linear;
    }
  }

  void window(const at::Tensor& tokens) {
    Side ours(model_, tokens), theirs(original_, tokens);
    const std::size_t layers = model_.decoder().layers().size();
    for (std::size_t i = 0; i < layers; ++i) {
      PassWatch::check();
      layer(i, ours, theirs);
      PassWatch::layer_done(static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(layers));
    }
    compare(
        -1, [&] { return original_.head(theirs.normalised()); }, [&] { return model_.head(ours.normalised()); });
  }

  std::vector<LayerError> errors() {
    std::vector<LayerError> out;
    for (Line& line : lines_) {
      line.error.alone = line.alone.relative();
      if (line.together.original > 0) line.error.together = line.together.relative();
      out.push_back(line.error);
    }
    return out;
  }

 private:
  void layer(std::size_t i, Side& ours, Side& theirs) {
    const auto index = static_cast<std::int64_t>(i);
    const auto [found, wanted] = compare(
        index, [&] { return theirs.layer(i, theirs.stream); }, [&] { return ours.layer(i, ours.stream); });
    const std::string name = model_.decoder().path() + "." + std::to_string(i);
    Line& whole = line(index, name);
    whole.together.add(found, wanted);
    whole.alone.add(ours.layer(i, theirs.stream), wanted);
    ours.stream = found;
    theirs.stream = wanted;
  }

  // Runs the same part of both models, ours second, and compares all products in it. Returns what both gave.
  template <class Theirs, class Ours>
  std::pair<at::Tensor, at::Tensor> compare(std::int64_t layer, const Theirs& run_theirs, const Ours& run_ours) {
    std::vector<std::pair<const Linear*, Seen>> seen;
    at::Tensor wanted;
    {
      const Tap tap([&](const Linear& linear, const at::Tensor& input, const at::Tensor& result) {
        if (const Linear* counterpart = counterpart_of(linear)) seen.push_back({counterpart, {input, result}});
      });
      wanted = run_theirs();
    }
    for (const auto& [linear, of] : seen)
      line(layer, linear->path()).alone.add(linear->multiply(of.input, of.result.scalar_type()), of.result);
    const Tap tap([&](const Linear& linear, const at::Tensor&, const at::Tensor& result) {
      const auto found = std::ranges::find(seen, &linear, [](const auto& item) { return item.first; });
      if (found == seen.end() || found->second.result.sizes() != result.sizes()) return;
      line(layer, linear.path()).together.add(result, found->second.result);
    });
    return {run_ours(), wanted};
  }

  const Linear* counterpart_of(const Linear& linear) const {
    const auto found = linears_.find(linear.path());
    return found == linears_.end() ? nullptr : found->second;
  }

  Line& line(std::int64_t layer, const std::string& name) {
    const auto [place, is_new] = places_.try_emplace(name, lines_.size());
    if (is_new) {
      const std::string path = model_.decoder().path() + "." + std::to_string(layer);
      const bool is_inside = layer >= 0 && name.size() > path.size();
      lines_.push_back({{layer,
                         layer < 0   ? name
                         : is_inside ? name.substr(path.size() + 1)
                                     : "",
                         name,
                         0,
                         {}},
                        {},
                        {}});
    }
    return lines_[place->second];
  }

  const CausalLM& model_;
  const CausalLM& original_;
  std::map<std::string, const Linear*> linears_;
  std::map<std::string, std::size_t> places_;
  std::vector<Line> lines_;
};

void check_layers(const CausalLM& model, const CausalLM& original) {
  model.decoder().check_all_layers();
  original.decoder().check_all_layers();
  const std::size_t ours = model.decoder().layers().size(), theirs = original.decoder().layers().size();
  if (ours == theirs) return;
  throw Error(ErrorCode::kInvalidArgument, "the models differ in layers, " + std::to_string(ours) + " and " +
                                               std::to_string(theirs) + ": one was not made of the other");
}

}  // namespace
}  // namespace models

std::vector<LayerError> layer_errors(const models::CausalLM& model, const models::CausalLM& original,
                                     const TokenIds& text, const TokenIds& prefix, const PerplexityOptions& options) {
  using namespace models;
  const c10::InferenceMode guard;
  check_layers(model, original);
  const Windows windows = windows_for(model, text, prefix, options);
  const std::int64_t count = std::min(windows.count, kLayerErrorWindows);
  Comparison comparison(model, original);
  std::int64_t done = 0;
  const PassWatch watch(options.stop, [&](std::int64_t layer, std::int64_t layers) {
    if (options.progress) options.progress(done + windows.context * layer / layers, count * windows.context);
    if (layer == layers) done += windows.context;
  });
  return translated([&] { return "comparing layers under " + model.policy().name(); },
                    [&] {
                      for (std::int64_t i = 0; i < count; ++i) comparison.window(batch_of(windows, i, 1).tokens);
                      return comparison.errors();
                    });
}

}  // namespace halfbyte
