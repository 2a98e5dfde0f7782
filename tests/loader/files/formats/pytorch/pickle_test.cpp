#include "loader/files/formats/pytorch/pickle.h"

#include <random>

#include "tests/loader/files/formats/pytorch/torch_file.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::pickle::Kind;
using files::pickle::read_pickle;

namespace {

const std::string kWhere = "x.bin: ";

void check_refused(ErrorCode code, const std::string& pickle, const std::string& part) {
  INFO(part);
  check_error(code, {kWhere, part}, [&] { read_pickle(pickle, kWhere); });
}

std::string repeated(const std::string& piece, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += piece;
  return out;
}

const std::string kSystem = global("posix", "system") + "(" + text("touch /tmp/halfbyte-pwned") + "tR";

}  // namespace

TEST_CASE("pickle: containers, numbers and text", "[pickle]") {
  const std::string bytes = pickle_of(dict(
      {{"list", "](K\1M\1\2J\xff\xff\xff\xff" + integer(-5) + "\x8a" + std::string(1, '\0') + "e"},
       {"tuple", "N\x88\x86"},
       {"float", "G" + std::string(8, '\0')},
       {"ordered", global("collections", "OrderedDict") + ")R(" + text("k") + "K\7u}(" + text("_metadata") + "}ub"},
       {"size", global("torch", "Size") + "(K\2K\3t\x85R"},
       {"dtype", global("torch", "bfloat16")}}));
  const auto pickle = read_pickle(bytes, kWhere);
  CHECK(pickle.size_bytes == bytes.size());
  REQUIRE(pickle.root.kind == Kind::kDict);
  const auto items = pickle.items(pickle.root);
  REQUIRE(items.size() == 12);
  CHECK(pickle.text(items[0]) == "list");
  std::vector<std::int64_t> numbers;
  for (const auto& item : pickle.items(items[1])) numbers.push_back(item.number);
  CHECK(numbers == std::vector<std::int64_t>{1, 513, -1, -5, 0});
  CHECK(pickle.items(items[3])[0].kind == Kind::kNone);
  CHECK(pickle.items(items[3])[1].kind == Kind::kBool);
  CHECK(items[5].kind == Kind::kFloat);
  REQUIRE(items[7].kind == Kind::kDict);
  CHECK(pickle.items(items[7]).size() == 2);
  CHECK(items[9].kind == Kind::kTuple);
  CHECK((static_cast<Dtype>(items[11].number) == Dtype::kBfloat16));
}

TEST_CASE("pickle: a tensor, and the same from the memo", "[pickle]") {
  const std::string one = tensor_of("0", 12, 2, {2, 3}, {3, 1});
  for (const std::string& bytes :
       {pickle_of(dict({{"a", one + "q\7"}, {"b", "h\7"}})),
        "\x80\x04\x95" + little<std::uint64_t>(1) + dict({{"a", one + "\x94"}, {"b", std::string("h\0", 2)}}) + "."}) {
    const auto pickle = read_pickle(bytes, kWhere);
    const auto items = pickle.items(pickle.root);
    REQUIRE(items.size() == 4);
    REQUIRE(pickle.tensors.size() == 1);
    CHECK(items[1].number == items[3].number);
    CHECK(pickle.tensors[0].offset == 2);
    CHECK(pickle.tensors[0].shape == std::vector<std::int64_t>{2, 3});
    CHECK(pickle.storages[0].key == "0");
    CHECK(pickle.storages[0].size == 12);
  }
}

TEST_CASE("pickle: what would run something is refused by its name", "[pickle][hostile]") {
  fs::remove("/tmp/halfbyte-pwned");
  const auto kUnsupported = ErrorCode::kUnsupported;
  check_refused(kUnsupported, pickle_of(kSystem), "\"posix.system\"");
  check_refused(kUnsupported, pickle_of(dict({{"a", kSystem}})), "nothing was run");
  check_refused(kUnsupported, pickle_of(text("builtins") + text("eval") + "\x93" + text("1") + "\x85R"),
                "\"builtins.eval\"");
  check_refused(kUnsupported, pickle_of(text("torch._utils") + text("_rebuild_tensor_v2.__globals__") + "\x93)R"),
                "__globals__");
  CHECK_FALSE(fs::exists("/tmp/halfbyte-pwned"));
}

TEST_CASE("pickle: names of the list cannot be used otherwise", "[pickle][hostile]") {
  const auto kCorrupt = ErrorCode::kCorrupt, kUnsupported = ErrorCode::kUnsupported;
  const std::string type = global("torch", "FloatStorage"), rebuild = global("torch._utils", "_rebuild_tensor_v2");
  const std::string held = storage("0", "FloatStorage", 4);
  check_refused(kUnsupported, pickle_of(type + ")R"), "only named");
  check_refused(kUnsupported, pickle_of(type + "Nb"), "state of its own");
  check_refused(kUnsupported, pickle_of(rebuild + ")\x81"), "opcode 129");
  check_refused(kUnsupported, pickle_of("(i" + std::string("os\nsystem\n")), "opcode 105");
  check_refused(kUnsupported, pickle_of("Pos.system\n"), "opcode 80");
  check_refused(kCorrupt, pickle_of(rebuild + ")R"), "without a storage");
  check_refused(kCorrupt, pickle_of(rebuild + "(K\1" + integer(0) + integers({1}) + integers({1}) + "tR"),
                "without a storage");
  check_refused(kCorrupt, pickle_of(rebuild + "(" + held + integer(0) + integers({1}) + integers({1, 1}) + "tR"),
                "strides");
  check_refused(kCorrupt, pickle_of(rebuild + "(" + held + integer(0) + text("x") + integers({1}) + "tR"), "shape");
  check_refused(
      kCorrupt,
      pickle_of(rebuild + "(" + held + integer(0) + integers(std::vector<std::int64_t>(65, 1)) + integers({1}) + "tR"),
      "odd shape");
  check_refused(kCorrupt, pickle_of(text("x") + "Q"), "refers to what is no storage");
  check_refused(kCorrupt, pickle_of(joined({"(", text("storage"), rebuild, text("0"), text("cpu"), "K\1tQ"})),
                "no storage");
  check_refused(kCorrupt, pickle_of(text("x") + ")R"), "cannot be called");
  check_refused(kCorrupt, pickle_of("}NR"), "cannot be called");
}

TEST_CASE("pickle: a broken stack is an error", "[pickle][hostile]") {
  const auto kCorrupt = ErrorCode::kCorrupt;
  for (const char* ops : {"",  "0",     "t", "a", "]a", "s", "}Ns",  "(u",     "}(Nu", "(]",
                          "e", "]N(Ne", "2", "R", "b",  "Q", "\x85", "\x87NN", "q\1",  "1"})
    check_refused(kCorrupt, "\x80\x02" + std::string(ops) + ".", "its pickle");
  check_refused(kCorrupt, "\x80\x02}", "ends early");
  check_refused(kCorrupt,
                "\x80\x02"
                "X\xff\xff\xff\x7f"
                "ab.",
                "ends early");
  check_refused(kCorrupt, std::string("\x80\x05\x8d") + std::string(8, '\xff') + ".", "ends early");
  check_refused(kCorrupt, std::string("\x80\x05\x95") + std::string(8, '\xff') + ".", "ends early");
  check_refused(ErrorCode::kUnsupported, "\x80\x06N.", "protocol 6");
  check_refused(ErrorCode::kUnsupported, "(dp0\n.", "protocol 0 or 1");
}

TEST_CASE("pickle: bombs stay in proportion to their bytes", "[pickle][hostile]") {
  // "laughs": each list holds the one before ten times; here a handle each.
  std::string laughs = "]q" + std::string(1, '\0');
  for (char i = 1; i < 100; ++i)
    laughs +=
        joined({"](", repeated(joined({"h", std::string(1, static_cast<char>(i - 1))}), 10), "eq", std::string(1, i)});
  const auto pickle = read_pickle(pickle_of(laughs), kWhere);
  CHECK(pickle.containers.size() == 100);
  // A list that holds itself.
  CHECK(read_pickle(pickle_of("]q\1h\1a"), kWhere).containers.size() == 1);
  // Depth costs no stack.
  CHECK(
      read_pickle(pickle_of(joined({"]", repeated("]", 999'999), repeated("a", 999'999)})), kWhere).containers.size() ==
      1'000'000);
  CHECK(read_pickle(pickle_of(joined({repeated("(", 1'000'000), "K\1", repeated("t", 1'000'000)})), kWhere)
            .containers.size() == 1'000'000);
  check_refused(ErrorCode::kCorrupt, pickle_of(repeated("]", 3 << 20)), "more than");
  check_refused(ErrorCode::kCorrupt, pickle_of(joined({"N", repeated("2", 3 << 20)})), "more than");
  check_refused(ErrorCode::kCorrupt, pickle_of(repeated("(", 3 << 20)), "too deep");
  check_refused(ErrorCode::kCorrupt, joined({"\x80\x04N", repeated("\x94", 3 << 20), "."}), "keeps more than");
  // One long list, given to a callee again and again.
  const std::string pairs = joined({"](", repeated("NN\x86", 100'000), "e\x85q\1"});
  check_refused(ErrorCode::kCorrupt, pickle_of(pairs + repeated(global("collections", "OrderedDict") + "h\1R0", 1000)),
                "more than");
  const std::string many = joined({"(", repeated("N", 100'000), "tq\1"});
  check_refused(ErrorCode::kCorrupt, pickle_of(many + global("collections", "OrderedDict") + "h\1R"),
                "too many arguments");
}

TEST_CASE("pickle: every prefix and many damaged copies end in an error or a value", "[pickle][hostile]") {
  const std::string bytes = pickle_of(dict({{"a", tensor_of("0", 6, 0, {2, 3}, {3, 1})}, {"b", integers({1, 2})}}));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    INFO(size);
    CHECK_THROWS_AS(read_pickle(std::string_view(bytes).substr(0, size), kWhere), Error);
  }
  std::mt19937 random(1);
  int errors = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = bytes;
    for (int flips = 0; flips <= i % 4; ++flips)
      damaged[random() % damaged.size()] ^= static_cast<char>(1U << (random() % 8));
    try {
      read_pickle(damaged, kWhere);
    } catch (const Error&) {
      ++errors;
    }
  }
  CHECK(errors > 1000);
}
