// Folders in NAME.partial, one for each part of a conversion that several runs share; each has a journal of its own.
#pragma once

#include <optional>
#include <vector>

#include <halfbyte/convert.h>

#include "convert/output/journal.h"

namespace halfbyte::convert {

// In NAME.partial and in each part's folder: the file whose claim holds between machines.
inline constexpr const char* kPartsLock = "lock";
// In each part's folder: where it calibrates, and there what it says meanwhile, written anew as long as it lives.
inline constexpr const char* kPartCalibration = "calibration";
inline constexpr const char* kSaid = "said";

// NAME.partial/part-2-of-4, which is locked while a process works on that part.
files::fs::path part_folder(const files::fs::path& work, const WorkPart& part);
// What a folder of that name is of; nothing: of no part.
std::optional<WorkPart> part_of_folder(const files::fs::path& name);
// Of those that are there.
std::vector<WorkPart> parts_begun(const files::fs::path& work);

// Errors: kIo. A link of that name would have others' files written to.
void make_part_folder(const files::fs::path& folder);
void empty_part_folder(const files::fs::path& folder);  // but for its lock

// All that was finished in `work`: by a run of the whole and by parts, each tensor by whoever was read last. Nothing
// when there is no journal. `identity` is that of the first; where it is given, of the first that has another.
std::optional<JournalContents> read_journals(const files::fs::path& work, const nlohmann::json* expected = nullptr);

}  // namespace halfbyte::convert
