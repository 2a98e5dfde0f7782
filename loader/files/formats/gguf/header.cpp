#include "loader/files/formats/gguf/header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

// Above every header there is (the largest vocabularies take 20 MB), and small enough to walk through.
constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{1} << 28;
constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 24;
constexpr std::uint64_t kMaxKeyBytes = 65535;  // as ggml
constexpr std::uint64_t kMaxNameBytes = 127;   // of tensors; ggml takes 63
constexpr std::uint32_t kMaxDimensions = 4;
constexpr std::uint64_t kMaxValues = std::uint64_t{1} << 60;  // of one tensor
constexpr std::uint32_t kMaxAlignment = 1 << 20;
constexpr std::uint32_t kDefaultAlignment = 32;
// The least that an entry takes: of the metadata a key's length, a type, a byte; of the tensors a name's length, a
// character, the dimensions' count, one of them, a type, an offset.
constexpr std::uint64_t kMinValueBytes = 8 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

constexpr std::uint64_t scalar_bytes(GgufValueType type) noexcept {
  constexpr std::uint64_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kSizes[static_cast<std::size_t>(type)];
}

// The file from its beginning on, read in pieces.
class Cursor {
 public:
  explicit Cursor(const InputFile& file) : file_(file), end_(std::min(file.size_bytes(), kMaxHeaderBytes)) {}

  std::uint64_t position() const noexcept { return begin_ + at_; }
  std::uint64_t left() const noexcept { return end_ - position(); }

  template <typename T>
  T number(const char* what) {
    T out{};
    take(what, std::as_writable_bytes(std::span(&out, 1)));
    return out;
  }

  std::string text(const std::string& what, std::uint64_t max_bytes) {
    std::string out(length(what, max_bytes), '\0');
    take(what, std::as_writable_bytes(std::span(out)));
    return out;
  }

  void skip_text(const std::string& what) { skip(what, length(what, kMaxTextBytes)); }

  void skip(const std::string& what, std::uint64_t size) {
    need(what, size);
    if (size <= buffer_.size() - at_) {
      at_ += size;
      return;
    }
    begin_ = position() + size;
    at_ = 0;
    buffer_.clear();
  }

  // At most as many as the bytes that are left can hold.
  std::uint64_t count(const char* what, std::uint64_t min_bytes_each) {
    const auto out = number<std::uint64_t>(what);
    if (out > left() / min_bytes_each)
      fail(std::string(what) + " is " + std::to_string(out) + ", more than " + the_rest() + " can hold");
    return out;
  }

  void need(const std::string& what, std::uint64_t size) const {
    if (size > left())
      fail(what + " takes " + std::to_string(size) + " bytes at byte " + std::to_string(position()) + ", more than " +
           the_rest() + " has");
  }

  [[noreturn]] void fail(const std::string& problem, ErrorCode code = ErrorCode::kCorrupt) const {
    throw Error(code, printable_path(file_.path()) + ": " + problem);
  }

 private:
  static constexpr std::uint64_t kPiece = std::uint64_t{1} << 18;

  std::string the_rest() const {
    return end_ == kMaxHeaderBytes ? "the longest header that is read (256 MiB)" : "the rest of the file";
  }

  std::uint64_t length(const std::string& what, std::uint64_t max_bytes) {
    const auto out = number<std::uint64_t>(what.c_str());
    if (out > max_bytes)
      fail(what + " has " + std::to_string(out) + " bytes; at most " + std::to_string(max_bytes) + " are expected");
    need(what, out);
    return out;
  }

  void take(const std::string& what, std::span<std::byte> out) {
    need(what, out.size());
    while (!out.empty()) {
      if (at_ == buffer_.size()) refill();
      const std::size_t count = std::min(out.size(), buffer_.size() - at_);
      std::copy_n(buffer_.data() + at_, count, out.data());
      at_ += count;
      out = out.subspan(count);
    }
  }

  void refill() {
    begin_ += at_;
    at_ = 0;
    buffer_.resize(std::min(kPiece, end_ - begin_));
    file_.read(begin_, buffer_);
  }

  const InputFile& file_;
  std::uint64_t end_;
  std::uint64_t begin_ = 0;  // of the buffer in the file
  std::size_t at_ = 0;       // in the buffer
  std::vector<std::byte> buffer_;
};

class Parse {
 public:
  explicit Parse(const InputFile& file) : file_(file), cursor_(file) {}

  GgufHeader run() {
    check_version();
    const std::uint64_t tensors = cursor_.count("the number of tensors", kMinTensorBytes);
    const std::uint64_t values = cursor_.count("the number of metadata entries", kMinValueBytes);
    for (std::uint64_t i = 0; i < values; ++i) read_entry();
    alignment_ = alignment();
    for (std::uint64_t i = 0; i < tensors; ++i) read_tensor();
    out_.data_offset = padded(cursor_.position());
    place_tensors();
    return std::move(out_);
  }

 private:
  void check_version() {
    char magic[4];
    for (char& c : magic) c = cursor_.number<char>("the file's beginning");
    if (std::string_view(magic, 4) != "GGUF") cursor_.fail("does not begin with \"GGUF\"");
    const auto version = cursor_.number<std::uint32_t>("the version");
    if (version == 2 || version == 3) return;
    if (version != 0 && version % 65536 == 0)
      cursor_.fail("a big-endian GGUF file; little-endian ones are read", ErrorCode::kUnsupported);
    cursor_.fail("version " + std::to_string(version) + " of GGUF; 2 and 3 are read", ErrorCode::kUnsupported);
  }

  GgufValueType value_type(const std::string& key) {
    const auto number = cursor_.number<std::uint32_t>("a metadata type");
    if (number > static_cast<std::uint32_t>(GgufValueType::kFloat64))
      cursor_.fail("metadata " + in_quotes(key) + " is of type " + std::to_string(number) + ", which there is not");
    return static_cast<GgufValueType>(number);
  }

  void read_entry() {
    const std::string key = cursor_.text("a metadata key", kMaxKeyBytes);
    GgufValue value;
    value.type = value_type(key);
    if (value.type == GgufValueType::kArray) {
      read_list(key, value);
    } else if (value.type == GgufValueType::kString) {
      value.text = cursor_.text("metadata " + in_quotes(key), kMaxTextBytes);
    } else {
      read_scalar(key, value);
    }
    if (!out_.values.emplace(key, std::move(value)).second)
      cursor_.fail("metadata " + in_quotes(key) + " is there twice");
  }

  void read_scalar(const std::string& key, GgufValue& value) {
    const std::uint64_t size = scalar_bytes(value.type);
    for (std::uint64_t i = 0; i < size; ++i)
      value.bits |= std::uint64_t{cursor_.number<std::uint8_t>("a metadata value")} << (8 * i);
    if (value.type == GgufValueType::kBool && value.bits > 1)
      cursor_.fail("metadata " + in_quotes(key) + " is " + std::to_string(value.bits) + ", neither true nor false");
  }

  void read_list(const std::string& key, GgufValue& value) {
    value.is_list = true;
    value.type = value_type(key);
    const std::string what = "the list " + in_quotes(key);
    if (value.type == GgufValueType::kArray) cursor_.fail(what + " is one of lists, which no model needs");
    const std::uint64_t each = value.type == GgufValueType::kString ? 8 : scalar_bytes(value.type);
    value.count = cursor_.count((what + "'s length").c_str(), each);
    value.offset = cursor_.position();
    if (value.type == GgufValueType::kString) {
      for (std::uint64_t i = 0; i < value.count; ++i) cursor_.skip_text(what);
    } else {
      cursor_.skip(what, value.count * each);
    }
    value.size_bytes = cursor_.position() - value.offset;
  }

  std::uint32_t alignment() const {
    const auto entry = out_.values.find("general.alignment");
    if (entry == out_.values.end()) return kDefaultAlignment;
    const GgufValue& value = entry->second;
    if (value.type == GgufValueType::kUint32 && !value.is_list && value.bits <= kMaxAlignment &&
        std::has_single_bit(value.bits)) {
      return static_cast<std::uint32_t>(value.bits);
    }
    cursor_.fail("\"general.alignment\" is " + (value.is_list ? "a list" : std::to_string(value.bits)) +
                 "; expected a power of two up to " + std::to_string(kMaxAlignment) + ", as a 32-bit number");
  }

  // Offsets stay far below 2^64: headers are short, and tensors end within the file.
  std::uint64_t padded(std::uint64_t offset) const noexcept { return (offset + alignment_ - 1) & ~(alignment_ - 1); }

  void read_tensor() {
    GgufTensor tensor;
    tensor.name = cursor_.text("a tensor's name", kMaxNameBytes);
    if (tensor.name.empty()) cursor_.fail("a tensor has no name");
    if (!std::ranges::all_of(tensor.name, [](char c) { return c > ' ' && c < '\x7F'; }))
      cursor_.fail("tensor " + in_quotes(tensor.name) + " has a name that is not of plain characters");
    const std::string what = "tensor " + in_quotes(tensor.name);
    if (!names_.insert(tensor.name).second) cursor_.fail(what + " is there twice");
    read_shape(what, tensor);
    const auto number = cursor_.number<std::uint32_t>("a tensor's type");
    tensor.type = find_ggml_type(number);
    if (!tensor.type) refuse_type(what, number);
    tensor.size_bytes = size_of(what, tensor);
    tensor.offset = cursor_.number<std::uint64_t>("a tensor's offset");
    out_.tensors.push_back(std::move(tensor));
  }

  void read_shape(const std::string& what, GgufTensor& tensor) {
    const auto dimensions = cursor_.number<std::uint32_t>("the number of a tensor's dimensions");
    if (dimensions > kMaxDimensions)
      cursor_.fail(what + " has " + std::to_string(dimensions) + " dimensions; at most 4 are expected");
    std::uint64_t values = 1;
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      const auto length = cursor_.number<std::uint64_t>("a dimension");
      if (length < 1 || length > kMaxValues / values)
        cursor_.fail(what + " has a dimension of " + std::to_string(length) + ", which no file can hold");
      values *= length;
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(length));
    }
  }

  [[noreturn]] void refuse_type(const std::string& what, std::uint32_t number) const {
    const std::string name(ggml_type_name(number));
    cursor_.fail(what + " is of type " + (name.empty() ? "" : name + " (") + std::to_string(number) +
                     (name.empty() ? ", which there is not in this version's table of GGUF's types"
                                   : "), which this version does not read; take a file in another type"),
                 ErrorCode::kUnsupported);
  }

  // Blocks do not cross rows.
  std::uint64_t size_of(const std::string& what, const GgufTensor& tensor) const {
    const std::uint64_t columns = tensor.shape.empty() ? 1 : static_cast<std::uint64_t>(tensor.shape.back());
    if (columns % tensor.type->block_values != 0) {
      cursor_.fail(what + " has rows of " + std::to_string(columns) + " values, which blocks of " +
                   std::string(tensor.type->name) + " (" + std::to_string(tensor.type->block_values) +
                   ") do not divide");
    }
    std::uint64_t values = 1;
    for (const std::int64_t length : tensor.shape) values *= static_cast<std::uint64_t>(length);
    const std::uint64_t blocks = values / tensor.type->block_values;
    if (blocks > file_.size_bytes() / tensor.type->block_bytes) {
      cursor_.fail(what + " of shape " + printable(tensor.shape) + " and type " + std::string(tensor.type->name) +
                   " is larger than the file; download it again");
    }
    return blocks * tensor.type->block_bytes;
  }

  // In the order of the table, each on the alignment: as ggml's own reader wants them. So none overlaps another.
  void place_tensors() {
    std::uint64_t expected = 0;
    for (GgufTensor& tensor : out_.tensors) {
      const std::string what = "tensor " + in_quotes(tensor.name);
      if (tensor.offset != expected) {
        cursor_.fail(what + " begins at " + std::to_string(tensor.offset) + " of the data, where " +
                     std::to_string(expected) + " was expected");
      }
      const std::uint64_t size = file_.size_bytes();
      if (out_.data_offset > size || expected > size - out_.data_offset ||
          tensor.size_bytes > size - out_.data_offset - expected) {
        cursor_.fail(what + " ends behind the file's end (" + std::to_string(size) +
                     " bytes); the file is cut short: download it again");
      }
      tensor.offset += out_.data_offset;
      expected = padded(expected + tensor.size_bytes);
    }
  }

  const InputFile& file_;
  Cursor cursor_;
  GgufHeader out_;
  std::set<std::string> names_;
  std::uint64_t alignment_ = kDefaultAlignment;
};

}  // namespace

GgufHeader read_gguf_header(const InputFile& file) { return Parse(file).run(); }

}  // namespace halfbyte::files
