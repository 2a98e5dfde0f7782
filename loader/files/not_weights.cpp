#include "loader/files/not_weights.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <string_view>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

constexpr std::uint64_t kLookedAt = 64;

struct Known {
  std::string_view start;  // in small letters
  std::string_view says;
};

constexpr Known kKnown[] = {
    {"version https://git-lfs.github.com/",
     "is a pointer of Git LFS and not the weights; run 'git lfs pull' in its folder"},
    {"<!doctype html", "is a web page and not the weights; download the file itself (hf download ORG/MODEL)"},
    {"<html", "is a web page and not the weights; download the file itself (hf download ORG/MODEL)"},
};

bool is_text_character(char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

void refuse_not_weights(const InputFile& file, const std::string& cure) {
  const std::string name = printable_path(file.path());
  if (file.size_bytes() == 0) throw Error(ErrorCode::kCorrupt, name + ": is empty; copy it again");
  std::string start(std::min(file.size_bytes(), kLookedAt), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  std::ranges::transform(start, start.begin(),
                         [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  for (const Known& known : kKnown) {
    if (start.starts_with(known.start)) throw Error(ErrorCode::kCorrupt, name + ": " + std::string(known.says));
  }
  if (start.size() >= 8 && std::ranges::all_of(start.substr(0, 8), is_text_character))
    throw Error(ErrorCode::kUnsupported, name + ": is a text and holds no weights; " + cure);
}

}  // namespace halfbyte::files
