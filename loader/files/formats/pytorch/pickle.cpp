#include "loader/files/formats/pytorch/pickle.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include <halfbyte/error.h>

#include "loader/files/formats/pytorch/pickle_names.h"
#include "loader/files/printable.h"

namespace halfbyte::files::pickle {
namespace {

constexpr int kMinProtocol = 2, kMaxProtocol = 5;
// In all, on the stack and in the memo. A tensor takes about eight.
constexpr std::size_t kMaxObjects = std::size_t{2} << 20;
constexpr std::size_t kMaxArguments = 16;
constexpr std::size_t kMaxRank = 64;  // PyTorch's own limit

class Machine {
 public:
  Machine(std::string_view bytes, const std::string& where) : in_(bytes), where_(where) {}

  Pickle run() {
    if (in_.size() < 2 || in_[0] != '\x80')
      throw Error(ErrorCode::kUnsupported,
                  where_ + "a pickle of protocol 0 or 1; 2 to 5 are read. Give the model as safetensors");
    while (!is_done_) step();
    out_.root = pop();
    out_.size_bytes = at_;
    return std::move(out_);
  }

 private:
  struct Opcode {
    unsigned char code;
    void (Machine::*run)();
  };
  using Table = std::array<void (Machine::*)(), 256>;  // by code; null: not one of them
  static const Table& opcodes() noexcept;

  void step() {
    const auto code = static_cast<unsigned char>(take(1)[0]);
    const auto run = opcodes()[code];
    if (!run)
      refuse("opcode " + std::to_string(code) + " at byte " + std::to_string(at_ - 1), "which state dicts do not have");
    (this->*run)();
  }

  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt,
                where_ + "its pickle " + problem + ", before byte " + std::to_string(at_) + "; download it again");
  }
  [[noreturn]] void refuse(const std::string& what, const std::string& why) const {
    throw Error(ErrorCode::kUnsupported,
                where_ + "its pickle has " + what + ", " + why + "; nothing was run. Give the model as safetensors");
  }

  // Bytes of the pickle.
  std::string_view take(std::uint64_t size) {
    if (size > in_.size() - at_) fail("ends early");
    const std::string_view out = in_.substr(at_, size);
    at_ += size;
    return out;
  }
  template <typename T>
  T number() {
    T out{};
    std::memcpy(&out, take(sizeof out).data(), sizeof out);
    return out;
  }
  std::string_view line() {
    const std::size_t end = in_.find('\n', at_);
    if (end == std::string_view::npos) fail("ends early");
    const std::string_view out = take(end - at_);
    ++at_;
    return out;
  }

  // The stack. What lies below the last mark is out of reach.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void push(Value value) {
    if (stack_.size() == kMaxObjects) fail("holds more than " + std::to_string(kMaxObjects) + " values at once");
    stack_.push_back(value);
  }
  Value& top() {
    if (stack_.size() <= floor()) fail("takes a value that is not there");
    return stack_.back();
  }
  Value pop() {
    const Value out = top();
    stack_.pop_back();
    return out;
  }
  std::vector<Value> pop_to_mark() {
    if (marks_.empty()) fail("takes values up to a mark that is not there");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Value> out(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return out;
  }
  void mark() {
    if (marks_.size() == kMaxObjects) fail("is nested too deep");
    marks_.push_back(stack_.size());
  }

  // New objects.
  void count(std::size_t objects) {
    objects_ += objects;
    if (objects_ > kMaxObjects) fail("makes more than " + std::to_string(kMaxObjects) + " objects");
  }
  template <typename T>
  Value add(Kind kind, std::vector<T>& objects, T object) {
    count(1);
    objects.push_back(std::move(object));
    return {kind, static_cast<std::int64_t>(objects.size() - 1)};
  }
  void push_text(std::uint64_t size) { push(add(Kind::kText, out_.texts, take(size))); }
  void push_bytes(std::uint64_t size) { push(add(Kind::kBytes, out_.texts, take(size))); }
  void push_container(Kind kind, std::vector<Value> items) { push(add(kind, out_.containers, std::move(items))); }
  void push_tuple(std::size_t size) {
    std::vector<Value> items(size);
    for (std::size_t i = size; i-- > 0;) items[i] = pop();
    push_container(Kind::kTuple, std::move(items));
  }
  void push_bool(bool value) { push({Kind::kBool, value}); }
  void push_int(std::int64_t value) { push({Kind::kInt, value}); }

  // Integers of any length; those that no tensor has are only passed by.
  void push_long(std::uint64_t size) {
    const std::string_view bytes = take(size);
    if (size > sizeof(std::int64_t)) return push({Kind::kFloat, 0});
    std::int64_t value = !bytes.empty() && bytes.back() < 0 ? -1 : 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    push_int(value);
  }

  std::vector<Value>& items_of(Value value) { return out_.containers[static_cast<std::size_t>(value.number)]; }
  std::vector<Value>& container_on_top(Kind kind) {
    if (top().kind != kind) fail("fills what is no " + std::string(kind == Kind::kDict ? "dictionary" : "list"));
    return items_of(top());
  }
  static void append(std::vector<Value>& to, const std::vector<Value>& items) {
    to.insert(to.end(), items.begin(), items.end());
  }
  void set_item() {
    const Value value = pop(), key = pop();
    append(container_on_top(Kind::kDict), {key, value});
  }
  void set_items() {
    const std::vector<Value> items = pop_to_mark();
    if (items.size() % 2 != 0) fail("has a key without a value");
    append(container_on_top(Kind::kDict), items);
  }
  void append_item() {
    const Value item = pop();
    container_on_top(Kind::kList).push_back(item);
  }
  void append_items() {
    const std::vector<Value> items = pop_to_mark();
    append(container_on_top(Kind::kList), items);
  }
  void make_dict() {
    std::vector<Value> items = pop_to_mark();
    if (items.size() % 2 != 0) fail("has a key without a value");
    push_container(Kind::kDict, std::move(items));
  }

  void put(std::uint32_t index) {
    if (memo_.size() == kMaxObjects) fail("keeps more than " + std::to_string(kMaxObjects) + " values");
    memo_[index] = top();
  }
  void get(std::uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("recalls what it has not kept");
    push(found->second);
  }

  // Names, and what is called.
  void push_name(std::string_view module, std::string_view name) {
    const Name* found = find_name(module, name);
    if (!found) {
      const std::string full = std::string(module) + "." + std::string(name);
      refuse(in_quotes(full), "which is no part of a state dict");
    }
    if (found->meaning == Meaning::kDtype) return push({Kind::kDtype, static_cast<std::int64_t>(*found->dtype)});
    push({Kind::kName, index_of(*found)});
  }
  void stack_global() {
    const Value name = pop(), module = pop();
    if (name.kind != Kind::kText || module.kind != Kind::kText) fail("names what is no text");
    push_name(out_.text(module), out_.text(name));
  }

  void reduce() {
    const Value arguments = pop(), callee = pop();
    if (callee.kind != Kind::kName || arguments.kind != Kind::kTuple) fail("calls what cannot be called");
    const Name& name = name_at(callee.number);
    if (items_of(arguments).size() > kMaxArguments) fail("calls with too many arguments");
    const std::vector<Value> args = items_of(arguments);  // a copy: making objects moves the original
    switch (name.meaning) {
      case Meaning::kOrderedDict:
        return call_ordered_dict(args);
      case Meaning::kSize:
        if (args.size() != 1 || (args[0].kind != Kind::kTuple && args[0].kind != Kind::kList)) fail("has an odd Size");
        return push({Kind::kTuple, args[0].number});
      case Meaning::kTensor:
      case Meaning::kTensorWithDtype:
        return call_tensor(args, name.meaning == Meaning::kTensorWithDtype);
      case Meaning::kParameter:
        if (args.empty() || args[0].kind != Kind::kTensor) fail("has a Parameter that is no tensor");
        return push(args[0]);
      default:
        refuse("a call of " + in_quotes(std::string(name.module) + "." + std::string(name.name)),
               "which is only named in state dicts");
    }
  }

  void call_ordered_dict(const std::vector<Value>& args) {
    std::vector<Value> items;
    if (args.size() > 1 || (args.size() == 1 && args[0].kind != Kind::kList)) fail("has an odd OrderedDict");
    for (const Value& pair : args.empty() ? std::vector<Value>() : items_of(args[0])) {
      const bool is_sequence = pair.kind == Kind::kTuple || pair.kind == Kind::kList;
      if (!is_sequence || items_of(pair).size() != 2) fail("has an odd OrderedDict");
      append(items, items_of(pair));
      count(1);
    }
    push_container(Kind::kDict, std::move(items));
  }

  std::vector<std::int64_t> integers(Value value) {
    if (value.kind != Kind::kTuple && value.kind != Kind::kList) fail("has a tensor without a shape");
    std::vector<std::int64_t> out;
    for (const Value& item : items_of(value)) {
      if (item.kind != Kind::kInt || out.size() == kMaxRank) fail("has a tensor of an odd shape");
      out.push_back(item.number);
    }
    return out;
  }

  void call_tensor(const std::vector<Value>& args, bool has_dtype) {
    const std::size_t least = has_dtype ? 7 : 4;
    if (args.size() < least || args.size() > least + 3 || args[0].kind != Kind::kStorage || args[1].kind != Kind::kInt)
      fail("has a tensor without a storage");
    const Storage& storage = out_.storages[static_cast<std::size_t>(args[0].number)];
    if (has_dtype ? args[6].kind != Kind::kDtype || storage.dtype : !storage.dtype)
      fail("has a tensor without a dtype");
    // Flags for values that are conjugated or negated when they are read.
    const std::size_t metadata = has_dtype ? 7 : 6;
    if (args.size() > metadata && args[metadata].kind == Kind::kDict && !items_of(args[metadata]).empty())
      refuse("a tensor that is a lazy view", "which is not read");
    Tensor out;
    out.storage = args[0].number;
    out.dtype = has_dtype ? static_cast<Dtype>(args[6].number) : *storage.dtype;
    out.offset = args[1].number;
    out.shape = integers(args[2]);
    out.strides = integers(args[3]);
    if (out.shape.size() != out.strides.size()) fail("has a tensor with another number of strides than lengths");
    push(add(Kind::kTensor, out_.tensors, std::move(out)));
  }

  // ("storage", type, key, location, size), before PyTorch 1.6 with a view of it behind.
  void persistent_id() {
    const Value id = pop();
    if (id.kind != Kind::kTuple) fail("refers to what is no storage");
    const std::vector<Value>& args = items_of(id);
    const bool is_storage = (args.size() == 5 || args.size() == 6) && args[0].kind == Kind::kText &&
                            out_.text(args[0]) == "storage" && args[1].kind == Kind::kName &&
                            args[2].kind == Kind::kText && args[4].kind == Kind::kInt;
    if (!is_storage || name_at(args[1].number).meaning != Meaning::kStorageType) fail("refers to what is no storage");
    if (args.size() == 6 && args[5].kind != Kind::kNone) refuse("a view of a storage", "which is not read");
    push(
        add(Kind::kStorage, out_.storages, Storage{out_.text(args[2]), name_at(args[1].number).dtype, args[4].number}));
  }

  // An OrderedDict's attributes: PyTorch keeps versions of modules there.
  void build() {
    pop();
    if (top().kind != Kind::kDict) refuse("an object with a state of its own", "which is no part of a state dict");
  }

  void protocol() {
    const int version = number<std::uint8_t>();
    if (version < kMinProtocol || version > kMaxProtocol)
      refuse("protocol " + std::to_string(version), "where 2 to 5 are read");
  }
  void frame() {
    if (number<std::uint64_t>() > in_.size() - at_) fail("ends early");
  }
  void stop() {
    if (!marks_.empty()) fail("ends inside a container");
    is_done_ = true;
  }

  // One each, so that they fit into the table.
  void none() { push({}); }
  void push_true() { push_bool(true); }
  void push_false() { push_bool(false); }
  void int4() { push_int(number<std::int32_t>()); }
  void int1() { push_int(number<std::uint8_t>()); }
  void int2() { push_int(number<std::uint16_t>()); }
  void long1() { push_long(number<std::uint8_t>()); }
  void long4() { push_long(number<std::uint32_t>()); }
  void float8() { take(8), push({Kind::kFloat, 0}); }
  void text1() { push_text(number<std::uint8_t>()); }
  void text4() { push_text(number<std::uint32_t>()); }
  void text8() { push_text(number<std::uint64_t>()); }
  void bytes1() { push_bytes(number<std::uint8_t>()); }
  void bytes4() { push_bytes(number<std::uint32_t>()); }
  void bytes8() { push_bytes(number<std::uint64_t>()); }
  void empty_tuple() { push_container(Kind::kTuple, {}); }
  void empty_list() { push_container(Kind::kList, {}); }
  void empty_dict() { push_container(Kind::kDict, {}); }
  void tuple() { push_container(Kind::kTuple, pop_to_mark()); }
  void tuple1() { push_tuple(1); }
  void tuple2() { push_tuple(2); }
  void tuple3() { push_tuple(3); }
  void list() { push_container(Kind::kList, pop_to_mark()); }
  void put1() { put(number<std::uint8_t>()); }
  void put4() { put(number<std::uint32_t>()); }
  void memoize() { put(static_cast<std::uint32_t>(memo_.size())); }
  void get1() { get(number<std::uint8_t>()); }
  void get4() { get(number<std::uint32_t>()); }
  void global() {
    const std::string_view module = line();
    push_name(module, line());
  }
  void drop() { pop(); }
  void drop_to_mark() { pop_to_mark(); }
  void duplicate() { push(top()); }

  std::string_view in_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::size_t objects_ = 0;
  bool is_done_ = false;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, Value> memo_;
  Pickle out_;
};

const Machine::Table& Machine::opcodes() noexcept {
  static constexpr auto kOpcodes = std::to_array<Opcode>({
      {0x80, &Machine::protocol},    {0x95, &Machine::frame},      {'.', &Machine::stop},
      {'(', &Machine::mark},         {'0', &Machine::drop},        {'1', &Machine::drop_to_mark},
      {'2', &Machine::duplicate},    {'N', &Machine::none},        {0x88, &Machine::push_true},
      {0x89, &Machine::push_false},  {'J', &Machine::int4},        {'K', &Machine::int1},
      {'M', &Machine::int2},         {0x8a, &Machine::long1},      {0x8b, &Machine::long4},
      {'G', &Machine::float8},       {'X', &Machine::text4},       {0x8c, &Machine::text1},
      {0x8d, &Machine::text8},       {'U', &Machine::text1},       {'T', &Machine::text4},
      {'C', &Machine::bytes1},       {'B', &Machine::bytes4},      {0x8e, &Machine::bytes8},
      {0x96, &Machine::bytes8},      {')', &Machine::empty_tuple}, {0x85, &Machine::tuple1},
      {0x86, &Machine::tuple2},      {0x87, &Machine::tuple3},     {'t', &Machine::tuple},
      {']', &Machine::empty_list},   {'l', &Machine::list},        {'a', &Machine::append_item},
      {'e', &Machine::append_items}, {'}', &Machine::empty_dict},  {'d', &Machine::make_dict},
      {'s', &Machine::set_item},     {'u', &Machine::set_items},   {'q', &Machine::put1},
      {'r', &Machine::put4},         {0x94, &Machine::memoize},    {'h', &Machine::get1},
      {'j', &Machine::get4},         {'c', &Machine::global},      {0x93, &Machine::stack_global},
      {'R', &Machine::reduce},       {'b', &Machine::build},       {'Q', &Machine::persistent_id},
  });
  static constexpr Table kTable = [] {
    Table out{};
    for (const Opcode& row : kOpcodes) out[row.code] = row.run;
    return out;
  }();
  return kTable;
}

}  // namespace

Pickle read_pickle(std::string_view bytes, const std::string& where) { return Machine(bytes, where).run(); }

}  // namespace halfbyte::files::pickle
