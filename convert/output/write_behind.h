// Makes the system write to the disk while a file is still growing. For the converter.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <stop_token>

#include "convert/channel.h"
#include "loader/files/platform.h"

namespace halfbyte::convert {

// Starts writing early, which shortens the sync at the end. Not thread-safe.
class WriteBehind {
 public:
  WriteBehind() = default;
  ~WriteBehind() { stop_.request_stop(); }
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  // Bytes that were written, one range after another.
  void add(const std::shared_ptr<files::OutputFile>& file, std::uint64_t begin, std::uint64_t size);
  // Waits until the system has been asked to write all of it.
  void finish();

 private:
  struct Range {
    std::shared_ptr<files::OutputFile> file;
    std::uint64_t begin = 0, end = 0;
  };
  void send();

  Range pending_;
  // Long enough that push() never waits: a slow disk delays this thread alone.
  Channel<Range> ranges_{std::numeric_limits<std::size_t>::max()};
  std::stop_source stop_;
  Worker worker_{stop_, [this](const std::stop_token& stop) {
                   while (const auto range = ranges_.pop(stop))
                     range->file->start_writing(range->begin, range->end - range->begin);
                 }};
};

}  // namespace halfbyte::convert
