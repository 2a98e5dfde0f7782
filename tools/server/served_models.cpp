#include "tools/server/served_models.h"

#include <algorithm>

#include <halfbyte/error.h>

#include "tools/server/api/problem.h"

namespace halfbyte::server {

void ServedModels::add(ServedModel model) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::any_of(models_, [&](const auto& one) { return one->name == model.name; }))
    throw Error(ErrorCode::kInvalidArgument,
                "a model is served as '" + model.name + "' already; name this one otherwise");
  models_.push_back(std::make_shared<const ServedModel>(std::move(model)));
}

bool ServedModels::is_empty() const {
  const std::lock_guard lock(mutex_);
  return models_.empty();
}

std::vector<std::shared_ptr<const ServedModel>> ServedModels::all() const {
  const std::lock_guard lock(mutex_);
  if (models_.empty()) throw Problem(503, "the model is being loaded; try again soon");
  return models_;
}

std::shared_ptr<const ServedModel> ServedModels::named(const std::string& name) const {
  const auto models = all();
  std::string names;
  for (const auto& one : models) {
    if (one->name == name) return one;
    names += (names.empty() ? "'" : ", '") + one->name + "'";
  }
  throw Problem(404,
                "there is no model '" + name.substr(0, 100) + "' here; " +
                    (models.size() == 1 ? "this is " : "there are ") + names,
                "model", "model_not_found");
}

serving::EngineState ServedModels::state() const {
  serving::EngineState out;
  for (const auto& one : all()) {
    const serving::EngineState state = one->engine->state();
    for (const auto field :
         {&serving::EngineState::active, &serving::EngineState::waiting, &serving::EngineState::requests,
          &serving::EngineState::failed, &serving::EngineState::cancelled, &serving::EngineState::preempted,
          &serving::EngineState::prompt_tokens, &serving::EngineState::cached_tokens, &serving::EngineState::tokens,
          &serving::EngineState::kept_bytes, &serving::EngineState::kept_limit})
      out.*field += state.*field;
    out.busy_s += state.busy_s;
  }
  return out;
}

}  // namespace halfbyte::server
