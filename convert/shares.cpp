#include "convert/shares.h"

#include <algorithm>
#include <set>
#include <string>

#include <halfbyte/error.h>

namespace halfbyte::convert {
namespace {

bool is_written(const PlannedTensor& planned) { return planned.tied_to.empty(); }

// Shape: (Plan::tensors): the part, from 1, in whose even share the middle of the tensor lies; 0: of none.
std::vector<int> parts_of(const Plan& plan, int count) {
  long double all = 0, before = 0;
  for (const PlannedTensor& planned : plan.tensors) all += is_written(planned) ? planned.bytes_before : 0;
  std::vector<int> out;
  for (const PlannedTensor& planned : plan.tensors) {
    const long double size = is_written(planned) ? planned.bytes_before : 0;
    const long double middle = before + size / 2;
    before += size;
    const int part = all > 0 ? static_cast<int>(middle * count / all) + 1 : 1;
    out.push_back(is_written(planned) ? std::min(part, count) : 0);
  }
  return out;
}

}  // namespace

std::vector<bool> share_of(const Plan& plan, const WorkPart& part) {
  std::vector<bool> out;
  for (const int each : parts_of(plan, part.count)) out.push_back(each == part.index);
  return out;
}

std::vector<int> parts_left(const Plan& plan, int count, const JournalContents& journal) {
  const std::vector<int> parts = parts_of(plan, count);
  std::set<int> out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] > 0 && !journal.finished.contains(i)) out.insert(parts[i]);
  }
  return {out.begin(), out.end()};
}

bool goes_on(const QuantizeOptions& options) noexcept { return options.resume || options.finish || options.part; }

std::string parts_text(const std::vector<int>& parts, int count) {
  std::string out = parts.size() == 1 ? "part " : "parts ";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const char* const before = i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ";
    out += before + std::to_string(parts[i]);
  }
  return out + " of " + std::to_string(count);
}

void check_part(const QuantizeOptions& options) {
  if (!options.part && !options.finish) return;
  const Option option = options.part ? Option::kPart : Option::kFinish;
  const auto refuse = [&](const Text& why) { throw Error(ErrorCode::kInvalidArgument, option + ": " + why); };
  if (options.part && options.finish) refuse("not with " + Option::kFinish + ", which is for when all parts are done");
  if (options.part && (options.part->index < 1 || options.part->index > options.part->count)) {
    refuse(std::to_string(options.part->index) + " of " + std::to_string(options.part->count) +
           " is no part; the first is 1");
  }
  if (options.part && options.part_timeout < 1)
    refuse(std::to_string(options.part_timeout) + " s to wait for another part's sign are too few; 1 is the least");
  if (options.restart) {
    refuse("not with " + Option::kRestart + ", which would delete what other parts did; delete the folder yourself");
  }
  if (options.sensitivity || options.mix)
    refuse(
        "not with a target, for which the whole model is measured; measure once, and say what came of it to each part");
}

}  // namespace halfbyte::convert
