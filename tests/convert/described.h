// Checkpoints that are not on disk, for tests of what is planned for them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "convert/plan.h"
#include "tests/loader/files/packed_checkpoint.h"

namespace halfbyte::testing {

// plan() looks at names, shapes and dtypes only.
inline files::Checkpoint described(const std::vector<TestTensor>& tensors, const ordered_json& config = nullptr) {
  const Scratch scratch;
  write_checkpoint(scratch / "m", tensors, config);
  return files::open_checkpoint(scratch / "m");
}

inline const convert::PlannedTensor& of(const convert::Plan& plan, const files::Checkpoint& source,
                                        const std::string& name) {
  const auto found = std::ranges::find_if(
      plan.tensors, [&](const convert::PlannedTensor& t) { return source.tensors[t.source].name == name; });
  REQUIRE(found != plan.tensors.end());
  return *found;
}

}  // namespace halfbyte::testing
