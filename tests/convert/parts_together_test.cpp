// Parts that run at the same time, as those that calibrate do: here by a calibrator that leaves all tensors to their
// weights.
#include <chrono>
#include <memory>
#include <thread>

#include <nlohmann/json.hpp>

#include "convert/calibrator.h"
#include "convert/output/destination.h"
#include "convert/output/life_sign.h"
#include "convert/output/work_parts.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::QuantizeOptions;
using convert::QuantizeSummary;
using Sharing = files::DirectoryLock::Sharing;

namespace {

class NoCodes final : public convert::Calibrator {
 public:
  nlohmann::json record() const override { return {{"method", "none"}}; }
  std::uint64_t disk_bytes(const files::Checkpoint&, const convert::Plan&, bool) const override { return 0; }
  void run(const files::Checkpoint&, const convert::Plan&, const QuantizeOptions&,
           const convert::CalibrationPlace&) override {}
  bool has(std::size_t) const noexcept override { return false; }
  void read(std::size_t, std::uint64_t, quant::PackedRows, std::span<quant::ErrorStats>) const override {}
  std::vector<Text> notes() const override { return {}; }
};

QuantizeSummary run_part(const Scratch& scratch, int index, int count) {
  QuantizeOptions options{.part = {{index, count}}, .part_timeout = 1};
  options.calibrator = std::make_shared<NoCodes>();
  return convert::quantize(scratch / "src", scratch / "dst", options);
}

// As if that part were at work.
std::unique_ptr<files::DirectoryLock> at_work(const fs::path& folder) {
  fs::create_directories(folder);
  return files::DirectoryLock::of_file(folder / convert::kPartsLock, Sharing::kSole);
}

}  // namespace

TEST_CASE("parts together: the first one gives up another that is at work and gives no sign", "[parts]") {
  const Scratch scratch;
  write_checkpoint(scratch / "src", llama_tensors(), llama_config());
  const auto other = at_work(scratch / "dst.partial" / "part-2-of-2");
  check_error(ErrorCode::kIo,
              {"dst.partial: part 2 of 2 is at work and gave no sign for 1 s; this part is done", "finish completes"},
              [&] { run_part(scratch, 1, 2); });
}

TEST_CASE("parts together: one that gives signs is waited for, however long it takes", "[parts]") {
  const Scratch scratch;
  const auto timeout = std::chrono::seconds(2);
  convert::LifeSign sign(scratch / "sign", timeout);
  sign.show();
  convert::LifeWatch watch({scratch / "sign", scratch / "said"}, timeout);
  bool is_overdue = false;
  for (int signs = 0; signs < 5; ++signs) {  // a quarter of the timeout each
    const std::string before = read_text(scratch / "sign");
    while (read_text(scratch / "sign") == before) {
      sign.show();
      is_overdue |= watch.is_overdue();
    }
  }
  CHECK(!is_overdue);
  while (!watch.is_overdue()) std::this_thread::yield();  // once it says nothing any more
  write_text(scratch / "said", "another sign");
  while (watch.is_overdue()) std::this_thread::yield();
}

TEST_CASE("parts together: those of another number are refused while one is at work", "[parts]") {
  const Scratch scratch;
  write_checkpoint(scratch / "src", llama_tensors(), llama_config());
  auto other = at_work(scratch / "dst.partial" / "part-1-of-3");
  check_error(ErrorCode::kAlreadyExists, {"dst.partial: part 1 of 3 is at work", "of one number"},
              [&] { run_part(scratch, 2, 2); });
  CHECK(names_in(scratch / "dst.partial") == std::vector<std::string>{"checkpoint", "lock", "part-1-of-3"});
  other = nullptr;
  CHECK(run_part(scratch, 2, 2).parts_left == std::vector<int>{1});
  CHECK(run_part(scratch, 1, 2).is_whole);
}
