// The models that one server has.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "models/serving/engine.h"
#include "tools/server/http_server.h"

namespace halfbyte::server {

// Threads: any.
class ServedModels {
 public:
  // Errors: kInvalidArgument where one of that name is there.
  void add(ServedModel model);
  bool is_empty() const;
  // In the order in which they were added; the first is meant where no name is said. Errors: Problem 503 where there
  // is none yet, 404 where none is called so.
  std::vector<std::shared_ptr<const ServedModel>> all() const;
  std::shared_ptr<const ServedModel> first() const { return all().front(); }
  std::shared_ptr<const ServedModel> named(const std::string& name) const;
  // Of all engines together.
  serving::EngineState state() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const ServedModel>> models_;
};

}  // namespace halfbyte::server
