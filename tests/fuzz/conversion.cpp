// Whole conversions of small checkpoints, in this process: what is accepted and quantised verifies, and comes back.
#include <array>

#include <halfbyte/convert.h>

#include "convert/export/checkpoint.h"
#include "convert/gguf/export.h"
#include "tests/fuzz/bundle.h"
#include "tests/fuzz/results.h"
#include "tests/fuzz/target.h"

namespace halfbyte::fuzz {
namespace {

constexpr auto kSchemes = std::to_array<const char*>(
    {"sym_int4", "asym_int4", "sym_int8", "affine_int4", "iq4_nl", "nf4", "fp4", "fp4_e2m1", "hb4", "hb4_fine"});
constexpr auto kGroupSizes = std::to_array<std::int64_t>({16, 32, 64, 0});
constexpr auto kExports = std::to_array<const char*>({"compressed-tensors", "gptq", "awq", "bitsandbytes"});

// The last byte of the input decides how; the other ones are the source.
class Choice {
 public:
  explicit Choice(std::string_view input) : byte_(input.empty() ? 0u : static_cast<unsigned char>(input.back())) {}
  template <class Rows>
  auto of(const Rows& rows) {
    const auto out = rows[byte_ % rows.size()];
    byte_ = byte_ / static_cast<unsigned>(rows.size()) + 17u * static_cast<unsigned>(out != rows[0]);
    return out;
  }

 private:
  unsigned byte_;
};

convert::QuantizeOptions options_of(Choice& choice) {
  convert::QuantizeOptions out;
  out.scheme = choice.of(kSchemes);
  out.group_size = choice.of(kGroupSizes);
  out.threads = 1;
  out.halfbyte_only = true;
  out.requantize = true;
  return out;
}

void convert_back(const Results& results, Choice& choice) {
  const fs::path quantised = results / "quantised";
  const bool is_back = is_done([&] { convert::dequantize(quantised, results / "dense", {.threads = 1}); });
  if (is_back) require_good(results / "dense");
  const convert::ExportOptions options{.format = choice.of(kExports), .requantize = true, .threads = 1};
  const bool is_exported = is_done([&] { convert::export_checkpoint(quantised, results / "export", options); });
  if (is_exported) require_good(results / "export");
  const bool is_gguf = is_done([&] { convert::export_gguf(quantised, results / "export.gguf", {.requantize = true}); });
  if (is_gguf) require_good(results / "export.gguf");
}

}  // namespace

void fuzz_conversion(std::string_view input) {
  Choice choice(input);
  const Results results;
  const fs::path& source = folder_of(input).path();
  auto options = options_of(choice);
  const bool is_repacked = is_done([&] { convert::repack(source, results / "repacked", {.threads = 1}); });
  if (is_repacked) require_good(results / "repacked");
  if (!is_done([&] { convert::quantize(source, results / "quantised", options); })) return;
  require_good(results / "quantised");
  convert_back(results, choice);
}

}  // namespace halfbyte::fuzz
