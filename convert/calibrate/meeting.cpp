#include "convert/calibrate/meeting.h"

#include <algorithm>
#include <random>
#include <thread>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/output/life_sign.h"
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

constexpr const char* kAlive = "alive";
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 24;
constexpr std::size_t kHashDigits = 32;
constexpr auto kShortest = 1ms, kLongest = 20ms;  // from one look at what another says to the next

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
      own_(part_folder(work, options.part) / kPartCalibration),
      options_(options),
      beat_(between_signs(options.timeout)),
      nonce_(new_nonce()),
      heard_(static_cast<std::size_t>(options.part.count)),
      seen_(heard_.size()),
      marks_(heard_.size()),
      open_(heard_.size()) {
  make_part_folder(own_);
  for (const path& inside : files::entries(own_))
    if (!files::is_sole_regular_file(inside)) files::remove_tree(inside);  // which lead elsewhere
  alive_ = claim(own_ / kAlive);
  say();
}

path Meeting::folder(int part) const { return part_folder(work_, {part + 1, count()}) / kPartCalibration; }

path Meeting::file(int part, const char* name) const { return folder(part) / name; }

path Meeting::given_path(int part, std::uint64_t step) const {
  return folder(part) / ("given-" + std::to_string(step % 2));
}

std::string Meeting::name(int part) const {
  return "part " + std::to_string(part + 1) + " of " + std::to_string(count());
}

std::string Meeting::named(int part) const { return files::printable_path(work_) + ": " + name(part); }

void Meeting::say() {
  const auto words = [](const Words& of) {
    return nlohmann::json{of.text, of.given.table, of.given.pieces, of.given.hash};
  };
  const std::string text = nlohmann::json{{"nonce", nonce_},          {"heard", heard_},    {"step", step_},
                                          {"before", words(before_)}, {"now", words(now_)}, {"beat", ++beats_}}
                               .dump();
  const std::string line = files::hash_hex(text) + text;
  OutputFile file(own_ / kSaid, line.size(), OutputFile::Existing::kGoOn);
  file.write(0, std::as_bytes(std::span(line)));
  file.close();
  said_at_ = Clock::now();
}

void Meeting::beat() {
  if (Clock::now() - said_at_ >= beat_) say();
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
  const auto words = [](const nlohmann::json& of) { return Words{of.at(0), {of.at(1), of.at(2), of.at(3)}}; };
  return Said{json.at("nonce"),         json.at("heard"),      json.at("step"),
              words(json.at("before")), words(json.at("now")), std::move(line)};
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

// Whether its claim was held once, and is not any more. An error says nothing of it: then the timeout decides.
bool Meeting::is_gone(int part) try {
  const path alive = file(part, kAlive);
  if (files::is_regular_file(alive)) files::DirectoryLock::of_file(alive, files::DirectoryLock::Sharing::kShared);
  return seen_[static_cast<std::size_t>(part)];
} catch (const Error& error) {
  if (error.code() == ErrorCode::kAlreadyExists) seen_[static_cast<std::size_t>(part)] = true;
  return false;
}

// It may have come here, and ended then.
Meeting::Words Meeting::last_words(int part) const {
  const std::optional<Said> said = listen(part);
  const bool is_known = said && said->nonce == heard_[static_cast<std::size_t>(part)];
  if (is_known && said->step == step_) return said->now;
  throw Error(ErrorCode::kIo, named(part) + " ended before it was done; run all parts again");
}

Meeting::Words Meeting::wait_for(int part) {
  std::string last;
  Clock::time_point sign = Clock::now(), looked = sign;
  for (auto pause = kShortest;; pause = std::min(kLongest, 2 * pause)) {
    check_stop(options_.stop);
    const std::optional<Said> said = listen(part);
    const Clock::time_point now = Clock::now();
    const bool has_spoken = said && said->raw != last;
    bool is_gone = false;
    if ((has_spoken && !seen_[static_cast<std::size_t>(part)]) || now - looked >= beat_ / 4) {
      is_gone = this->is_gone(part);
      looked = now;
    }
    if (has_spoken) {
      last = said->raw;
      sign = now;
    }
    const bool is_known = hear(part, said);
    if (is_known && said->step == step_) return said->now;
    if (is_known && said->step == step_ + 1) return said->before;
    if (is_gone) return last_words(part);
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
  check_stop(options_.stop);
  beat();
  if (!giving_) giving_ = std::make_unique<GivenWriter>(given_path(index(), step_ + 1));
  return giving_->add(bytes);
}

std::vector<std::string> Meeting::meet(const std::string& text) {
  Words words{text, giving_ ? giving_->close() : GivenMark()};
  giving_.reset();
  for (auto& each : open_) each.reset();
  ++step_;
  before_ = std::exchange(now_, std::move(words));
  say();
  std::vector<std::string> out;
  for (int part = 0; part < count(); ++part) {
    Words said = part == index() ? now_ : wait_for(part);
    marks_[static_cast<std::size_t>(part)] = std::move(said.given);
    out.push_back(std::move(said.text));
  }
  return out;
}

const GivenReader& Meeting::given(int part) {
  const auto i = static_cast<std::size_t>(part);
  if (!open_[i]) open_[i] = std::make_unique<GivenReader>(given_path(part, step_), marks_[i], name(part));
  return *open_[i];
}

void Meeting::read(int part, std::uint64_t begin, std::span<std::byte> out) {
  check_stop(options_.stop);
  beat();
  if (!out.empty()) given(part).read(begin, out);
}

void Meeting::remove_given() const {
  for (const std::uint64_t step : {0U, 1U}) files::remove_tree(given_path(index(), step));
}

}  // namespace halfbyte::convert::calibrate
