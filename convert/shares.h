// Who does what of a conversion that several runs share.
#pragma once

#include <string>
#include <vector>

#include "convert/output/journal.h"
#include "convert/plan.h"

namespace halfbyte::convert {

// Shape: (Plan::tensors): whether a tensor is written by that part. Each is by one; what is tied to another by none.
// Neighbours go together, and a part's bytes of source differ from an even share by one tensor's at most.
std::vector<bool> share_of(const Plan& plan, const WorkPart& part);
// Those of `count` that have tensors which are not finished, from 1.
std::vector<int> parts_left(const Plan& plan, int count, const JournalContents& journal);
// Whether the options say that what an earlier run left is gone on with.
bool goes_on(const QuantizeOptions& options) noexcept;
// "part 2 of 4", "parts 2 and 4 of 4".
std::string parts_text(const std::vector<int>& parts, int count);
// Whether the options go with `part` or `finish`, where those are set. Errors: kInvalidArgument.
void check_part(const QuantizeOptions& options);

}  // namespace halfbyte::convert
