#include "convert/output/life_sign.h"

#include <algorithm>
#include <random>

#include <halfbyte/error.h>

#include "loader/files/file_tree.h"
#include "loader/files/json_text.h"

namespace halfbyte::convert {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 24;

// One that cannot be read is being written, or is not there yet.
std::string sign_in(const files::fs::path& file) try {
  return files::is_regular_file(file) ? files::read_text(file, kMaxBytes) : "";
} catch (const Error&) {
  return "";
}

}  // namespace

std::chrono::milliseconds between_signs(std::chrono::milliseconds timeout) noexcept {
  return std::min<std::chrono::milliseconds>(std::chrono::seconds(1), timeout / 4);
}

// That of an earlier run is another.
void LifeSign::show() {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (count_ > 0 && now - shown_ < between_signs(timeout_)) return;
  if (count_ == 0) count_ = std::random_device()() | 1U;
  const std::string text = std::to_string(count_++);
  files::OutputFile file(file_, text.size(), files::OutputFile::Existing::kGoOn);
  file.write(0, std::as_bytes(std::span(text)));
  file.close();
  shown_ = now;
}

LifeWatch::LifeWatch(std::vector<files::fs::path> files, std::chrono::milliseconds timeout)
    : files_(std::move(files)), timeout_(timeout), last_(signs()), changed_(Clock::now()), looked_(changed_) {}

std::string LifeWatch::signs() const {
  std::string out;
  for (const files::fs::path& file : files_) out += sign_in(file) + "\n";
  return out;
}

bool LifeWatch::is_overdue() {
  const Clock::time_point now = Clock::now();
  if (now - looked_ < between_signs(timeout_)) return false;
  looked_ = now;
  if (std::string found = signs(); found != last_) {
    last_ = std::move(found);
    changed_ = now;
  }
  return now - changed_ >= timeout_;
}

}  // namespace halfbyte::convert
