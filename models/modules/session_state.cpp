// Sessions on their way to where they outlive the process, and back.
#include <halfbyte/error.h>

#include "models/modules/stored_state.h"
#include "models/sessions/session.h"

namespace halfbyte::models {
namespace {

std::string layer_prefix(std::size_t layer) { return "layers." + std::to_string(layer) + "."; }

StoredState& stored(const std::unique_ptr<LayerState>& layer) { return dynamic_cast<StoredState&>(*layer); }

}  // namespace

bool Session::is_cut_of(const Session* whole, std::size_t layer, std::int64_t length) const {
  return whole && whole->expected_ == expected_ && whole->layers_[layer]->least(whole->length_) <= length;
}

void Session::check_alone() const {
  if (trace_.is_followed())
    throw Error(ErrorCode::kUnsupported, "ranks of a model have parts of what a file of a prompt would hold");
}

std::vector<StateTensor> Session::tensors(const Session* whole) const {
  check_alone();
  std::vector<StateTensor> out;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!layers_[i] || is_cut_of(whole, i, length_)) continue;
    for (StateTensor& one : stored(layers_[i]).tensors(length_)) {
      one.name = layer_prefix(i) + one.name;
      out.push_back(std::move(one));
    }
  }
  return out;
}

void Session::restore(std::int64_t length, std::int64_t expected, const StateSource& source, const std::string& prefix,
                      const Session* whole) {
  check_alone();
  expected_ = expected;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!layers_[i]) continue;
    if (is_cut_of(whole, i, length)) {
      layers_[i] = whole->layers_[i]->fork();
      layers_[i]->cut(length);
    } else {
      stored(layers_[i]).restore(length, LayerSource(source, prefix + layer_prefix(i)));
    }
  }
  length_ = length;
}

}  // namespace halfbyte::models
