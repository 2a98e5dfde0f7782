// halfbyte.json: what is read can be written, and is read back as the same.
#include "loader/files/manifest.h"
#include "tests/fuzz/results.h"
#include "tests/fuzz/target.h"

namespace halfbyte::fuzz {

void fuzz_manifest(std::string_view input) {
  const std::string text = files::manifest_to_json(files::parse_manifest(input, "fuzz"));
  require(files::manifest_hash_matches(text), "a manifest that is written has its own hash");
  std::string again;
  require(is_done([&] { again = files::manifest_to_json(files::parse_manifest(text, "fuzz")); }),
          "what is written is read");
  require(again == text, "it is read back as the same");
}

}  // namespace halfbyte::fuzz
