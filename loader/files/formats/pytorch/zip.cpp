#include "loader/files/formats/pytorch/zip.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kLocatorSignature = 0x07064b50;
constexpr std::uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr std::uint64_t kMaxComment = 0xffff;
constexpr std::uint64_t kMaxDirectoryBytes = std::uint64_t{64} << 20;
constexpr std::uint32_t kIsElsewhere = 0xffffffff;  // in the zip64 field
constexpr std::uint16_t kZip64Field = 1;
constexpr std::uint16_t kEncrypted = 1, kSizesFollow = 8;  // flags

template <typename T>
T number(Bytes bytes, std::uint64_t at) {
  T out{};
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

std::string text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// One member as the directory has it.
struct Entry {
  ZipMember member;
  std::uint64_t header = 0;  // offset of its own header
  std::uint16_t flags = 0;
};

struct Directory {
  std::uint64_t offset = 0, size_bytes = 0, entries = 0;
};

class Zip {
 public:
  explicit Zip(const InputFile& file) : file_(file), where_(printable_path(file.path()) + ": ") {}

  std::vector<ZipMember> members() {
    const Directory directory = find_directory();
    std::vector<Entry> entries = read_directory(directory);
    for (Entry& entry : entries) place(entry, directory.offset);
    check_apart(entries, directory.offset);
    std::vector<ZipMember> out;
    for (Entry& entry : entries) out.push_back(std::move(entry.member));
    std::ranges::sort(out, {}, &ZipMember::name);
    const auto twice = std::ranges::adjacent_find(out, {}, &ZipMember::name);
    if (twice != out.end()) fail("has the member " + in_quotes(twice->name) + " twice");
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt, where_ + "the zip file that a PyTorch pickle lies in " + problem +
                                         "; download it again, or give the model as safetensors");
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::kUnsupported,
                where_ + what + ", which PyTorch does not write; give the model as safetensors");
  }

  std::vector<std::byte> read(std::uint64_t offset, std::uint64_t size) const {
    std::vector<std::byte> out(size);
    file_.read(offset, out);
    return out;
  }

  // The record at the end, before a comment that ends with the file.
  std::uint64_t find_end(std::vector<std::byte>& end) const {
    const std::uint64_t size = std::min(file_.size_bytes(), kEndBytes + kMaxComment);
    const std::vector<std::byte> tail = read(file_.size_bytes() - size, size);
    for (std::uint64_t comment = 0; comment + kEndBytes <= size; ++comment) {
      const Bytes at = Bytes(tail).subspan(size - kEndBytes - comment);
      if (number<std::uint32_t>(at, 0) != kEndSignature || number<std::uint16_t>(at, 20) != comment) continue;
      end.assign(at.begin(), at.begin() + kEndBytes);
      return file_.size_bytes() - kEndBytes - comment;
    }
    fail("has no directory at its end");
  }

  // The record of large files, or nothing.
  std::optional<std::uint64_t> find_end64(std::uint64_t end) const {
    if (end < kLocatorBytes) return std::nullopt;
    const auto locator = read(end - kLocatorBytes, kLocatorBytes);
    if (number<std::uint32_t>(locator, 0) != kLocatorSignature) return std::nullopt;
    const auto at = number<std::uint64_t>(locator, 8);
    if (at > end - kLocatorBytes || end - kLocatorBytes - at < kEnd64Bytes) fail("points outside itself");
    return at;
  }

  Directory find_directory() const {
    std::vector<std::byte> end;
    std::uint64_t limit = find_end(end);
    Directory out{number<std::uint32_t>(end, 16), number<std::uint32_t>(end, 12), number<std::uint16_t>(end, 10)};
    if (number<std::uint16_t>(end, 4) != number<std::uint16_t>(end, 6)) refuse("this is one of several parts of a zip");
    if (const auto at = find_end64(limit)) {
      const auto end64 = read(*at, kEnd64Bytes);
      if (number<std::uint32_t>(end64, 0) != kEnd64Signature) fail("has a broken record of its size");
      if (number<std::uint32_t>(end64, 16) != 0 || number<std::uint32_t>(end64, 20) != 0)
        refuse("this is one of several parts of a zip");
      out = {number<std::uint64_t>(end64, 48), number<std::uint64_t>(end64, 40), number<std::uint64_t>(end64, 32)};
      limit = *at;
    }
    const bool is_inside = out.offset <= limit && out.size_bytes == limit - out.offset;
    if (!is_inside || out.size_bytes > kMaxDirectoryBytes || out.entries > out.size_bytes / kCentralBytes)
      fail("has a directory of " + std::to_string(out.size_bytes) + " bytes at " + std::to_string(out.offset) +
           ", which does not fit");
    return out;
  }

  std::vector<Entry> read_directory(const Directory& directory) const {
    const std::vector<std::byte> bytes = read(directory.offset, directory.size_bytes);
    Bytes rest = bytes;
    std::vector<Entry> out;
    for (std::uint64_t i = 0; i < directory.entries; ++i) {
      if (rest.size() < kCentralBytes || number<std::uint32_t>(rest, 0) != kCentralSignature)
        fail("has a broken directory");
      const std::uint64_t name = number<std::uint16_t>(rest, 28), extra = number<std::uint16_t>(rest, 30);
      const std::uint64_t size = kCentralBytes + name + extra + number<std::uint16_t>(rest, 32);
      if (rest.size() < size) fail("has a broken directory");
      out.push_back(read_entry(rest, rest.subspan(kCentralBytes, name), rest.subspan(kCentralBytes + name, extra)));
      rest = rest.subspan(size);
    }
    if (!rest.empty()) fail("has a directory with " + std::to_string(rest.size()) + " bytes too many");
    return out;
  }

  Entry read_entry(Bytes fields, Bytes name, Bytes extra) const {
    Entry out;
    out.member.name = text(name);
    out.flags = number<std::uint16_t>(fields, 8);
    const std::string what = "member " + in_quotes(out.member.name);
    if (("/" + out.member.name + "/").find("/../") != std::string::npos) refuse(what + " leaves its folder");
    if (out.flags & kEncrypted) refuse(what + " is encrypted");
    out.member.is_compressed = number<std::uint16_t>(fields, 10) != 0;
    std::uint64_t size = number<std::uint32_t>(fields, 24);
    out.member.size_bytes = number<std::uint32_t>(fields, 20);
    out.header = number<std::uint32_t>(fields, 42);
    read_zip64(extra, {&size, &out.member.size_bytes, &out.header});
    if (size != out.member.size_bytes && !out.member.is_compressed) fail("says two sizes of the " + what);
    return out;
  }

  // Fills in, in this order, those that are elsewhere.
  void read_zip64(Bytes extra, std::initializer_list<std::uint64_t*> fields) const {
    const auto is_needed = [](const std::uint64_t* field) { return *field == kIsElsewhere; };
    if (std::ranges::none_of(fields, is_needed)) return;
    while (extra.size() >= 4) {
      const std::uint64_t size = number<std::uint16_t>(extra, 2);
      if (extra.size() - 4 < size) break;
      Bytes field = extra.subspan(4, size);
      if (number<std::uint16_t>(extra, 0) == kZip64Field) {
        for (std::uint64_t* out : fields) {
          if (!is_needed(out)) continue;
          if (field.size() < 8) fail("has a broken record of a large member");
          *out = number<std::uint64_t>(field, 0);
          field = field.subspan(8);
        }
        return;
      }
      extra = extra.subspan(4 + size);
    }
    fail("has no record of a large member's size");
  }

  // Finds the member's bytes behind its own header, which must agree.
  void place(Entry& entry, std::uint64_t limit) const {
    ZipMember& member = entry.member;
    const std::string what = "member " + in_quotes(member.name);
    if (entry.header > limit || limit - entry.header < kLocalBytes) fail("points outside itself for the " + what);
    const auto fields = read(entry.header, kLocalBytes);
    const std::uint64_t name = number<std::uint16_t>(fields, 26), extra = number<std::uint16_t>(fields, 28);
    if (limit - entry.header - kLocalBytes < name + extra) fail("points outside itself for the " + what);
    const auto rest = read(entry.header + kLocalBytes, name + extra);
    const Bytes own_name = Bytes(rest).first(name);
    const bool is_same = number<std::uint32_t>(fields, 0) == kLocalSignature && text(own_name) == member.name &&
                         (number<std::uint16_t>(fields, 8) != 0) == member.is_compressed &&
                         ((number<std::uint16_t>(fields, 6) ^ entry.flags) & (kEncrypted | kSizesFollow)) == 0;
    if (!is_same) fail("has a header for the " + what + " that its directory contradicts");
    check_sizes(entry, fields, Bytes(rest).subspan(name));
    member.offset = entry.header + kLocalBytes + name + extra;
    if (member.size_bytes > limit - member.offset)
      fail("ends before the " + what + " does, which has " + std::to_string(member.size_bytes) + " bytes");
  }

  void check_sizes(const Entry& entry, Bytes fields, Bytes extra) const {
    std::uint64_t packed = number<std::uint32_t>(fields, 18), size = number<std::uint32_t>(fields, 22);
    if ((entry.flags & kSizesFollow) && packed == 0 && size == 0) return;
    read_zip64(extra, {&size, &packed});
    const bool is_same = packed == entry.member.size_bytes && (entry.member.is_compressed || size == packed);
    if (!is_same) fail("says two sizes of the member " + in_quotes(entry.member.name));
  }

  void check_apart(std::vector<Entry>& entries, std::uint64_t limit) const {
    std::ranges::sort(entries, {}, &Entry::header);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const ZipMember& member = entries[i].member;
      const std::uint64_t next = i + 1 < entries.size() ? entries[i + 1].header : limit;
      if (member.offset + member.size_bytes > next)
        fail("has members that overlap, " + in_quotes(member.name) + " and the next");
    }
  }

  const InputFile& file_;
  std::string where_;
};

}  // namespace

std::vector<ZipMember> read_zip(const InputFile& file) { return Zip(file).members(); }

bool is_zip(const InputFile& file) {
  if (file.size_bytes() < sizeof kLocalSignature) return false;
  std::uint32_t start = 0;
  file.read(0, std::as_writable_bytes(std::span(&start, 1)));
  return start == kLocalSignature;
}

const ZipMember* find_member(const std::vector<ZipMember>& members, std::string_view name) {
  const auto found = std::ranges::lower_bound(members, name, {}, &ZipMember::name);
  return found != members.end() && found->name == name ? &*found : nullptr;
}

}  // namespace halfbyte::files
