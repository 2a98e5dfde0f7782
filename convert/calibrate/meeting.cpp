#include "convert/calibrate/meeting.h"

#include <algorithm>
#include <random>
#include <thread>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/output/work_parts.h"
#include "convert/output/write_progress.h"
#include "loader/files/file_tree.h"
#include "loader/files/hash.h"
#include "loader/files/json_text.h"
#include "loader/files/printable.h"

namespace halfbyte::convert::calibrate {
namespace {

using Clock = std::chrono::steady_clock;
using files::OutputFile;
using files::fs::path;
using namespace std::chrono_literals;

constexpr const char* kFolder = "calibration";
constexpr const char* kAlive = "alive";
constexpr const char* kSaid = "said";
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 24;
constexpr std::size_t kHashDigits = 32;
constexpr auto kShortest = 1ms, kLongest = 20ms;  // from one look at what another says to the next
constexpr auto kBeat = 1s;                        // and from one sign of life, or look for it, to the next

// One of 2^64: two runs of a part never have the same.
std::string new_nonce() {
  std::random_device device;
  return std::to_string(std::uint64_t{device()} << 32 | device());
}

// Others look whether a part is alive by a claim that they let go of at once.
std::unique_ptr<files::DirectoryLock> claim(const path& file) {
  for (int tries = 20;; --tries) {
    try {
      return files::DirectoryLock::of_file(file, files::DirectoryLock::Sharing::kSole);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kAlreadyExists || tries == 0) throw;
      std::this_thread::sleep_for(kLongest);
    }
  }
}

}  // namespace

Meeting::Meeting(const path& work, const Options& options)
    : work_(work),
      own_(part_folder(work, options.part) / kFolder),
      options_(options),
      nonce_(new_nonce()),
      heard_(static_cast<std::size_t>(options.part.count)),
      open_(heard_.size()) {
  make_part_folder(own_);
  for (const path& inside : files::entries(own_))
    if (!files::is_sole_regular_file(inside)) files::remove_tree(inside);  // which lead elsewhere
  alive_ = claim(own_ / kAlive);
  say();
}

path Meeting::folder(int part) const { return part_folder(work_, {part + 1, count()}) / kFolder; }

path Meeting::file(int part, const char* name) const { return folder(part) / name; }

path Meeting::given_path(int part, std::uint64_t step) const {
  return folder(part) / ("given-" + std::to_string(step % 2));
}

std::string Meeting::named(int part) const {
  return files::printable_path(work_) + ": part " + std::to_string(part + 1) + " of " + std::to_string(count());
}

void Meeting::say() {
  const std::string text = nlohmann::json{{"nonce", nonce_},   {"heard", heard_}, {"step", step_},
                                          {"before", before_}, {"now", now_},     {"beat", ++beats_}}
                               .dump();
  const std::string line = files::hash_hex(text) + text;
  OutputFile file(own_ / kSaid, line.size(), OutputFile::Existing::kGoOn);
  file.write(0, std::as_bytes(std::span(line)));
  said_at_ = Clock::now();
}

void Meeting::beat() {
  if (Clock::now() - said_at_ >= kBeat) say();
}

// Nothing: it is not there, or is being written.
std::optional<Meeting::Said> Meeting::listen(int part) const try {
  const path from = file(part, kSaid);
  if (!files::is_regular_file(from)) return std::nullopt;
  std::string line = files::read_text(from, kMaxBytes);
  if (line.size() < kHashDigits) return std::nullopt;
  const std::string_view text = std::string_view(line).substr(kHashDigits);
  if (files::hash_hex(text) != std::string_view(line).substr(0, kHashDigits)) return std::nullopt;
  const auto json = files::parse_json<nlohmann::json>(text, kSaid, {});
  return Said{json.at("nonce"), json.at("heard"), json.at("step"), json.at("before"), json.at("now"), std::move(line)};
} catch (const std::exception&) {
  return std::nullopt;
}

// Whether it and this one know each other.
bool Meeting::hear(int part, const std::optional<Said>& said) {
  if (!said) return false;
  std::string& known = heard_[static_cast<std::size_t>(part)];
  if (known != said->nonce) {
    if (!known.empty() && step_ > 1)
      throw Error(ErrorCode::kIo, named(part) + " ended and began again; run all parts again");
    known = said->nonce;
    say();
  }
  return said->heard.size() == heard_.size() && said->heard[static_cast<std::size_t>(index())] == nonce_;
}

bool Meeting::is_gone(int part) const try {
  files::DirectoryLock::of_file(file(part, kAlive), files::DirectoryLock::Sharing::kSole);
  return true;
} catch (const Error& error) {
  return error.code() != ErrorCode::kAlreadyExists;
}

// It may have come here, and ended then.
std::string Meeting::last_words(int part) const {
  const std::optional<Said> said = listen(part);
  const bool is_known = said && said->nonce == heard_[static_cast<std::size_t>(part)];
  if (is_known && said->step == step_) return said->now;
  throw Error(ErrorCode::kIo, named(part) + " ended before it was done; run all parts again");
}

std::string Meeting::wait_for(int part) {
  std::string last;
  bool was_there = false;
  Clock::time_point sign = Clock::now(), looked = sign;
  for (auto pause = kShortest;; pause = std::min(kLongest, 2 * pause)) {
    check_stop(options_.stop);
    const std::optional<Said> said = listen(part);
    const bool is_known = hear(part, said);
    if (is_known && said->step == step_) return said->now;
    if (is_known && said->step == step_ + 1) return said->before;
    const Clock::time_point now = Clock::now();
    if (said && said->raw != last) {
      was_there |= !last.empty();  // the first may be of an earlier run
      last = said->raw;
      sign = now;
    }
    if ((is_known || was_there) && now - looked >= kBeat / 4) {
      if (is_gone(part)) return last_words(part);
      looked = now;
    }
    if (now - sign >= options_.timeout) {
      const std::string seconds =
          std::to_string(std::chrono::duration_cast<std::chrono::seconds>(options_.timeout).count());
      throw Error(ErrorCode::kIo, named(part) + (is_known ? " gave no sign for " : " did not come within ") + seconds +
                                      " s; parts of a calibrated conversion run at the same time");
    }
    beat();
    std::this_thread::sleep_for(pause);
  }
}

std::uint64_t Meeting::give(std::span<const std::byte> bytes) {
  if (!giving_) giving_ = std::make_unique<OutputFile>(given_path(index(), step_ + 1), 0, OutputFile::Existing::kGoOn);
  const std::uint64_t begin = given_bytes_;
  giving_->write(begin, bytes);
  given_bytes_ += bytes.size();
  return begin;
}

std::vector<std::string> Meeting::meet(const std::string& text) {
  giving_.reset();
  given_bytes_ = 0;
  for (auto& each : open_) each.reset();
  ++step_;
  before_ = std::exchange(now_, text);
  say();
  std::vector<std::string> out;
  for (int part = 0; part < count(); ++part) out.push_back(part == index() ? text : wait_for(part));
  return out;
}

const files::InputFile& Meeting::given(int part) {
  auto& found = open_[static_cast<std::size_t>(part)];
  if (!found) found = std::make_unique<files::InputFile>(given_path(part, step_));
  return *found;
}

}  // namespace halfbyte::convert::calibrate
