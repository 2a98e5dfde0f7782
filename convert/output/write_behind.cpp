#include "convert/output/write_behind.h"

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kAtOnceBytes = std::uint64_t{8} << 20;

}  // namespace

void WriteBehind::add(const std::shared_ptr<files::OutputFile>& file, std::uint64_t begin, std::uint64_t size) {
  if (pending_.file != file || pending_.end != begin) {
    send();
    pending_ = {file, begin, begin};
  }
  pending_.end += size;
  if (pending_.end - pending_.begin >= kAtOnceBytes) send();
}

void WriteBehind::send() {
  if (pending_.end == pending_.begin) return;
  ranges_.push(pending_, stop_.get_token());
  pending_.begin = pending_.end;
}

void WriteBehind::finish() {
  ranges_.close();
  worker_.join();
}

}  // namespace halfbyte::convert
