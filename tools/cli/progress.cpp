#include "tools/cli/progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tools/cli/format.h"
#include "tools/cli/platform.h"

namespace halfbyte::cli {
namespace {

constexpr std::chrono::milliseconds kFirstDraw{300};  // what is over sooner needs no bar
constexpr std::chrono::milliseconds kBetweenDraws{100};
constexpr int kBarColumns = 30;

std::string bar_line(const std::string& label, double share, double elapsed_s) {
  const int filled = static_cast<int>(share * kBarColumns);
  std::string line = label + " [" + std::string(static_cast<std::size_t>(filled), '#') +
                     std::string(static_cast<std::size_t>(kBarColumns - filled), '.') + "] " + fixed(share * 100, 0) +
                     "%";
  if (share > 0.01) line += ", " + human_seconds(elapsed_s * (1 - share) / share) + " left";
  const auto columns = static_cast<std::size_t>(std::max(terminal_columns() - 1, 1));
  return line.substr(0, columns);
}

}  // namespace

Progress::Progress(std::string label, bool is_wanted)
    : label_(std::move(label)),
      is_shown_(is_wanted && stderr_is_terminal()),
      start_(Clock::now()),
      next_draw_(start_ + kFirstDraw) {}

Progress::~Progress() {
  if (is_drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::update(std::uint64_t done, std::uint64_t total) {
  if (!is_shown_ || total == 0) return;
  const Clock::time_point now = Clock::now();
  if (now < next_draw_) return;
  next_draw_ = now + kBetweenDraws;
  is_drawn_ = true;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const double elapsed_s = std::chrono::duration<double>(now - start_).count();
  std::fprintf(stderr, "\r%s\033[K", bar_line(label_, share, elapsed_s).c_str());
  std::fflush(stderr);
}

}  // namespace halfbyte::cli
