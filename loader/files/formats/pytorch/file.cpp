#include "loader/files/formats/pytorch/file.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include <halfbyte/error.h>

#include "loader/files/formats/pytorch/pickle.h"
#include "loader/files/formats/pytorch/state_dict.h"
#include "loader/files/formats/pytorch/zip.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

using pickle::Kind;
using pickle::Pickle;

constexpr std::string_view kPickleName = "/data.pkl";
constexpr std::string_view kLegacyMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
constexpr std::uint64_t kTarMagicAt = 257;
constexpr std::uint64_t kFirstWindow = std::uint64_t{1} << 20;  // of a file whose pickles say no size

std::string read_text_at(const InputFile& file, std::uint64_t offset, std::uint64_t size) {
  std::string out(size, '\0');
  file.read(offset, std::as_writable_bytes(std::span(out)));
  return out;
}

bool has_at(const InputFile& file, std::uint64_t offset, std::string_view magic) {
  return file.size_bytes() >= offset + magic.size() && read_text_at(file, offset, magic.size()) == magic;
}

std::uint64_t bytes_of(const pickle::Storage& storage, const std::string& where) {
  const std::int64_t width = storage.dtype ? size_bytes(*storage.dtype) : 1;
  std::int64_t size = 0;
  if (storage.size < 0 || __builtin_mul_overflow(storage.size, width, &size))
    throw Error(ErrorCode::kCorrupt, where + "storage " + in_quotes(storage.key) + " has an impossible size");
  return static_cast<std::uint64_t>(size);
}

class ZipReader {
 public:
  explicit ZipReader(const InputFile& file)
      : file_(file), where_(printable_path(file.path()) + ": "), members_(read_zip(file)) {}

  PytorchFile run() {
    const ZipMember& data = pickle_member();
    const std::string root = data.name.substr(0, data.name.size() - kPickleName.size());
    if (find_member(members_, root + "/constants.pkl")) refuse("a TorchScript program, which holds code");
    const auto compressed = std::ranges::find(members_, true, &ZipMember::is_compressed);
    if (compressed != members_.end())
      refuse("a zip whose member " + in_quotes(compressed->name) + " is compressed, which PyTorch does not write");
    check_byte_order(root);
    if (data.size_bytes > pickle::kMaxPickleBytes)
      refuse("a pickle of " + printable_bytes(data.size_bytes) + " without its tensors' values, where " +
             printable_bytes(pickle::kMaxPickleBytes) + " are read");
    const std::string bytes = read_text_at(file_, data.offset, data.size_bytes);
    const Pickle pickle = pickle::read_pickle(bytes, where_);
    std::vector<Place> places;
    for (const pickle::Storage& storage : pickle.storages) places.push_back(place_of(root, storage));
    return read_state_dict(file_, pickle, places);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::kUnsupported, where_ + "this is " + what + "; give the model as safetensors");
  }

  const ZipMember& pickle_member() const {
    const ZipMember* out = nullptr;
    for (const ZipMember& member : members_) {
      if (!member.name.ends_with(kPickleName) || member.name.find('/') != member.name.size() - kPickleName.size())
        continue;
      if (out) refuse("a zip with two pickles, " + in_quotes(out->name) + " and " + in_quotes(member.name));
      out = &member;
    }
    if (!out) refuse("a zip without a PyTorch pickle (data.pkl) in it");
    return *out;
  }

  void check_byte_order(const std::string& root) const {
    const ZipMember* member = find_member(members_, root + "/byteorder");
    if (!member) return;
    const std::string order = read_text_at(file_, member->offset, std::min<std::uint64_t>(member->size_bytes, 16));
    if (order != "little")
      refuse("a PyTorch pickle of byte order " + in_quotes(order) + ", and only \"little\" is read");
  }

  Place place_of(const std::string& root, const pickle::Storage& storage) const {
    const ZipMember* member = find_member(members_, root + "/data/" + std::string(storage.key));
    const std::uint64_t wanted = bytes_of(storage, where_);
    if (member && member->size_bytes >= wanted) return {member->offset, wanted};
    throw Error(ErrorCode::kCorrupt,
                where_ + "storage " + in_quotes(storage.key) + " of " + std::to_string(wanted) + " bytes " +
                    (member ? "has " + std::to_string(member->size_bytes) + " in the file" : "is not in the file") +
                    "; download it again");
  }

  const InputFile& file_;
  std::string where_;
  std::vector<ZipMember> members_;
};

// What torch before 1.6 saved: pickles one after another (a number that says so, a version, what the machine was
// like, the state dict, the storages' keys), then each storage: the number of its values, and these.
class LegacyReader {
 public:
  explicit LegacyReader(const InputFile& file) : file_(file), where_(printable_path(file.path()) + ": ") {}

  PytorchFile run() {
    for (std::uint64_t window = kFirstWindow;; window *= 8) {
      const std::uint64_t size = std::min({window, file_.size_bytes(), pickle::kMaxPickleBytes});
      text_ = read_text_at(file_, 0, size);
      try {
        read_pickles();
      } catch (const Error& error) {
        const bool may_be_longer = error.code() == ErrorCode::kCorrupt && size == window;
        if (may_be_longer) continue;
        throw;
      }
      return read_state_dict(file_, state_, find_places());
    }
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt, where_ + problem + "; download it again");
  }

  Pickle next() {
    Pickle out = pickle::read_pickle(std::string_view(text_).substr(at_), where_);
    at_ += out.size_bytes;
    return out;
  }

  void read_pickles() {
    at_ = kLegacyMagic.size();
    next();
    check_machine(next());
    state_ = next();
    keys_ = next();
  }

  void check_machine(const Pickle& machine) const {
    if (machine.root.kind != Kind::kDict) fail("says nothing of the machine that saved it");
    const auto items = machine.items(machine.root);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const bool is_order = items[i].kind == Kind::kText && machine.text(items[i]) == "little_endian";
      if (is_order && items[i + 1].number == 0)
        throw Error(ErrorCode::kUnsupported, where_ + "its values are big-endian; give the model as safetensors");
    }
  }

  std::vector<Place> find_places() const {
    std::map<std::string_view, std::uint64_t> sizes;
    for (const pickle::Storage& storage : state_.storages) {
      const std::uint64_t size = bytes_of(storage, where_);
      if (sizes.emplace(storage.key, size).first->second != size)
        fail("storage " + in_quotes(storage.key) + " has two sizes");
    }
    if (keys_.root.kind != Kind::kList) fail("has no list of storages");
    std::map<std::string_view, Place> places;
    std::uint64_t at = at_;
    for (const pickle::Value& value : keys_.items(keys_.root)) {
      const std::string_view key = value.kind == Kind::kText ? keys_.text(value) : std::string_view();
      const auto size = sizes.find(key);
      if (size == sizes.end()) fail("lists a storage " + in_quotes(key) + " that no tensor has");
      at += sizeof(std::uint64_t);  // the number again
      if (at > file_.size_bytes() || size->second > file_.size_bytes() - at)
        fail("ends before storage " + in_quotes(key) + " does");
      places.emplace(key, Place{at, size->second});
      at += size->second;
    }
    std::vector<Place> out;
    for (const pickle::Storage& storage : state_.storages) {
      const auto found = places.find(storage.key);
      if (found == places.end()) fail("storage " + in_quotes(storage.key) + " is not in the file");
      out.push_back(found->second);
    }
    return out;
  }

  const InputFile& file_;
  std::string where_;
  std::string text_;
  std::size_t at_ = 0;
  Pickle state_, keys_;
};

}  // namespace

bool is_pytorch(const InputFile& file) {
  return is_zip(file) || has_at(file, 0, kLegacyMagic) || has_at(file, kTarMagicAt, "ustar");
}

PytorchFile read_pytorch(const InputFile& file) {
  if (is_zip(file)) return ZipReader(file).run();
  if (has_at(file, 0, kLegacyMagic)) return LegacyReader(file).run();
  const bool is_tar = has_at(file, kTarMagicAt, "ustar");
  throw Error(
      ErrorCode::kUnsupported,
      printable_path(file.path()) + ": this is " +
          (is_tar ? "a PyTorch pickle in a tar, as torch before 0.4 saved; nothing was run or unpacked. Load it "
                    "with torch and save it again"
                  : "no PyTorch pickle by its bytes; download it again") +
          ", or give the model as safetensors");
}

}  // namespace halfbyte::files
