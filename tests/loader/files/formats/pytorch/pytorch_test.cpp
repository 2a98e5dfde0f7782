#include "loader/files/formats/pytorch/pytorch.h"

#include <random>

#include "tests/loader/files/formats/pytorch/torch_file.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::open_checkpoint;

namespace {

const std::string kTwelve = floats({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, Dtype::kFloat32);

// A file of one storage of twelve floats.
std::string file_of(const std::vector<std::pair<std::string, std::string>>& items) {
  return zip_of(torch_entries(pickle_of(dict(items)), {{"0", kTwelve}}));
}

std::vector<float> values_of(const files::Checkpoint& checkpoint, const std::string& name) {
  const files::StoredTensor* tensor = checkpoint.find(name);
  REQUIRE(tensor);
  std::vector<float> out(tensor->size_bytes / sizeof(float));
  files::read_stored(checkpoint, *tensor, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

files::Checkpoint open_file(const Scratch& scratch, const std::string& bytes) {
  write_text(scratch / "m.pt", bytes);
  return open_checkpoint(scratch / "m.pt");
}

void check_refused(ErrorCode code, const std::string& bytes, const std::vector<std::string>& parts) {
  const Scratch scratch;
  check_error(code, parts, [&] { open_file(scratch, bytes); });
}

}  // namespace

TEST_CASE("pytorch: views of one storage, mapped where they can be", "[pytorch]") {
  const Scratch scratch;
  const auto opened = open_file(scratch, file_of({{"whole", tensor_of("0", 12, 0, {3, 4}, {4, 1})},
                                                  {"same", tensor_of("0", 12, 0, {12}, {1})},
                                                  {"slice", tensor_of("0", 12, 5, {2, 1}, {1, 99})},
                                                  {"transposed", tensor_of("0", 12, 0, {4, 3}, {1, 4})},
                                                  {"expanded", tensor_of("0", 12, 7, {2, 3}, {0, 0})},
                                                  {"step", tensor_of("0", 12, 1, {3}, {4})},
                                                  {"scalar", tensor_of("0", 12, 11, {}, {})},
                                                  {"empty", tensor_of("0", 12, 12, {0, 5}, {5, 1})}}));
  CHECK(opened.kind == "PyTorch");
  CHECK(values_of(opened, "same").size() == 12);
  CHECK(values_of(opened, "slice") == std::vector<float>{5, 6});
  CHECK(values_of(opened, "transposed") == std::vector<float>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  CHECK(values_of(opened, "expanded") == std::vector<float>(6, 7));
  CHECK(values_of(opened, "step") == std::vector<float>{1, 5, 9});
  CHECK(values_of(opened, "scalar") == std::vector<float>{11});
  CHECK(values_of(opened, "empty").empty());
  for (const char* name : {"whole", "same", "slice", "scalar", "empty"})
    CHECK_FALSE(files::is_translated(opened, *opened.find(name)));
  for (const char* name : {"transposed", "expanded", "step"}) CHECK(files::is_translated(opened, *opened.find(name)));
  const auto map = files::map_data_file(opened, 0);
  CHECK(std::memcmp(map->bytes().data() + opened.find("whole")->offset, kTwelve.data(), kTwelve.size()) == 0);
  std::vector<float> two(2);
  files::read_stored(opened, *opened.find("transposed"), 5 * sizeof(float), std::as_writable_bytes(std::span(two)));
  CHECK(two == std::vector<float>{9, 2});
}

namespace {

// Every tensor of the safetensors checkpoint `truth`, with the same bytes.
void check_same_tensors(const fs::path& directory, const files::Checkpoint& truth) {
  const auto opened = open_checkpoint(directory);
  REQUIRE(opened.tensors.size() == truth.tensors.size());
  CHECK(opened.architecture == truth.architecture);
  for (const auto& tensor : truth.tensors) {
    const auto* found = opened.find(tensor.name);
    REQUIRE(found);
    std::string a(tensor.size_bytes, '\0'), b(found->size_bytes, '\1');
    files::read_stored(truth, tensor, 0, std::as_writable_bytes(std::span(a)));
    files::read_stored(opened, *found, 0, std::as_writable_bytes(std::span(b)));
    CHECK(a == b);
  }
}

}  // namespace

TEST_CASE("pytorch: a model, its shards and their index", "[pytorch]") {
  const Scratch scratch;
  std::vector<TestTensor> one = llama_tensors(), two;
  two.assign(one.begin() + 6, one.end());
  one.resize(6);
  write_checkpoint(scratch / "st", llama_tensors(), llama_config());
  const auto truth = open_checkpoint(scratch / "st");
  write_text(scratch / "m" / "config.json", llama_config().dump());
  write_text(scratch / "m" / "training_args.bin", "not the model");
  write_text(scratch / "m" / "expected.safetensors", safetensors({{"x", "U8", {1}, "x"}}));
  write_text(scratch / "m" / "pytorch_model.bin", torch_file(llama_tensors()));
  check_same_tensors(scratch / "m", truth);
  fs::remove(scratch / "m" / "pytorch_model.bin");
  fs::remove(scratch / "m" / "expected.safetensors");
  const std::string first = "pytorch_model-00001-of-00002.bin", second = "pytorch_model-00002-of-00002.bin";
  write_text(scratch / "m" / first, torch_file(one));
  check_error(ErrorCode::kCorrupt, {first, "2 shards"}, [&] { open_checkpoint(scratch / "m"); });
  write_text(scratch / "m" / second, torch_file(two));
  check_same_tensors(scratch / "m", truth);
  ordered_json map;
  for (const auto& tensor : one) map[tensor.name] = first;
  for (const auto& tensor : two) map[tensor.name] = second;
  const fs::path index = scratch / "m" / "pytorch_model.bin.index.json";
  write_text(index, ordered_json{{"weight_map", map}}.dump());
  check_same_tensors(scratch / "m", truth);
  map[one[0].name] = second;
  write_text(index, ordered_json{{"weight_map", map}}.dump());
  check_error(ErrorCode::kCorrupt, {one[0].name, second}, [&] { open_checkpoint(scratch / "m"); });
  map[one[0].name] = "../" + first;
  write_text(index, ordered_json{{"weight_map", map}}.dump());
  check_error(ErrorCode::kCorrupt, {"weight_map"}, [&] { open_checkpoint(scratch / "m"); });
}

TEST_CASE("pytorch: a model among other things", "[pytorch]") {
  const Scratch scratch;
  const std::string tensor = tensor_of("0", 12, 0, {12}, {1});
  auto opened = open_file(scratch, file_of({{"epoch", "K\3"}, {"model", dict({{"a", tensor}})}, {"args", "]"}}));
  CHECK(opened.find("a"));
  CHECK(opened.notes[0].find("\"model\"") != std::string::npos);
  opened = open_file(scratch, file_of({{"ema", dict({{"b", tensor}})}, {"state_dict", dict({{"a", tensor}})}}));
  CHECK(opened.find("a"));
  opened = open_file(scratch, file_of({{"a", tensor}, {"epoch", "K\3"}, {"more", dict({{"b", tensor}})}}));
  CHECK(opened.tensors.size() == 1);
  CHECK(opened.notes[0].find("\"epoch\", \"more\"") != std::string::npos);
  const auto kUnsupported = ErrorCode::kUnsupported;
  check_refused(kUnsupported, file_of({{"x", dict({{"a", tensor}})}, {"y", dict({{"b", tensor}})}}),
                {"several", "\"x\"", "\"y\""});
  check_refused(kUnsupported, file_of({{"epoch", "K\3"}}), {"holds no tensors"});
  check_refused(kUnsupported, zip_of(torch_entries(pickle_of("]" + tensor + "a"), {{"0", kTwelve}})),
                {"no dictionary"});
  check_refused(ErrorCode::kCorrupt, file_of({{"a", tensor}, {"a", tensor}}), {"\"a\"", "twice"});
  check_refused(ErrorCode::kCorrupt, file_of({{"\xff\xfe", tensor}}), {"UTF-8"});
}

TEST_CASE("pytorch: views that leave their storage", "[pytorch][hostile]") {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  struct Case {
    std::int64_t storage, offset;
    std::vector<std::int64_t> shape, strides;
  };
  const std::vector<Case> cases{
      {12, 0, {13}, {1}},        {12, 1, {12}, {1}},
      {12, 0, {3, 4}, {5, 1}},   {12, -1, {2}, {1}},
      {12, 0, {-1}, {1}},        {12, 5, {2}, {-1}},
      {12, kHuge, {1}, {1}},     {12, 0, {kHuge, 4}, {1, 1}},
      {12, 0, {2}, {kHuge}},     {12, 0, {3, 3}, {kHuge, kHuge}},
      {12, kHuge, {2}, {kHuge}}, {12, 0, {kHuge, kHuge}, {0, 0}},
      {12, 13, {0}, {1}},        {12, 0, {kHuge, 2}, {0, 0}},
  };
  for (const Case& each : cases) {
    INFO(each.offset << " " << each.shape[0]);
    check_refused(ErrorCode::kCorrupt,
                  file_of({{"t", tensor_of("0", each.storage, each.offset, each.shape, each.strides)}}),
                  {"m.pt", "tensor \"t\"", "storage"});
  }
  const auto one = [](std::int64_t size) { return file_of({{"t", tensor_of("0", size, 0, {1}, {1})}}); };
  check_refused(ErrorCode::kCorrupt, one(13), {"storage \"0\"", "48"});
  check_refused(ErrorCode::kCorrupt, one(-1), {"impossible size"});
  check_refused(ErrorCode::kCorrupt, one(kHuge), {"impossible size"});
  check_refused(ErrorCode::kCorrupt, file_of({{"t", tensor_of("../0", 1, 0, {1}, {1})}}), {"not in the file"});
  // A few bytes that say they are gigabytes.
  check_refused(ErrorCode::kUnsupported, file_of({{"t", tensor_of("0", 12, 0, {1 << 20, 1 << 12}, {0, 0})}}),
                {"many times"});
}

namespace {

const std::string kLegacyMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);

// As torch before 1.6 saved it: two storages, the second one first in the file.
std::string legacy_file(const std::string& is_little = "\x88", const std::string& listed = text("1") + text("0")) {
  const std::string state = dict({{"a", tensor_of("0", 12, 0, {4, 3}, {1, 4})}, {"b", tensor_of("1", 2, 1, {1}, {1})}});
  return joined({kLegacyMagic, pickle_of("M\xe9\3"), pickle_of(dict({{"little_endian", is_little}})), pickle_of(state),
                 pickle_of(joined({"](", listed, "e"})), little<std::int64_t>(2), floats({20, 21}, Dtype::kFloat32),
                 little<std::int64_t>(12), kTwelve});
}

}  // namespace

TEST_CASE("pytorch: what torch before 1.6 saved", "[pytorch]") {
  const Scratch scratch;
  const auto opened = open_file(scratch, legacy_file());
  CHECK(values_of(opened, "a") == std::vector<float>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  CHECK(values_of(opened, "b") == std::vector<float>{21});
  check_refused(ErrorCode::kUnsupported, legacy_file("\x89"), {"big-endian"});
  check_refused(ErrorCode::kCorrupt, legacy_file("\x88", text("1")), {"storage \"0\" is not in the file"});
  check_refused(ErrorCode::kCorrupt, legacy_file("\x88", text("1") + text("2")), {"storage \"2\" that no tensor has"});
  for (std::size_t size = 0; size < legacy_file().size(); ++size) {
    INFO(size);
    CHECK_THROWS_AS(open_file(scratch, legacy_file().substr(0, size)), Error);
  }
}

TEST_CASE("pytorch: other containers are refused by name", "[pytorch][hostile]") {
  const auto kUnsupported = ErrorCode::kUnsupported;
  const std::string tensor = tensor_of("0", 12, 0, {12}, {1});
  auto entries = torch_entries(pickle_of(dict({{"a", tensor}})), {{"0", kTwelve}});
  entries[1].bytes = "big";
  check_refused(kUnsupported, zip_of(entries), {"byte order", "\"big\""});
  entries[1] = {"m/constants.pkl", pickle_of(")")};
  check_refused(kUnsupported, zip_of(entries), {"TorchScript"});
  entries = torch_entries(pickle_of(dict({{"a", tensor}})), {{"0", kTwelve}});
  entries[2].method = 8;
  check_refused(kUnsupported, zip_of(entries), {"\"m/data/0\"", "compressed"});
  check_refused(kUnsupported, zip_of({{"word/document.xml", "<x/>"}}), {"without a PyTorch pickle"});
  check_refused(kUnsupported, zip_of({{"a/data.pkl", "x"}, {"b/data.pkl", "x"}}), {"two pickles"});
  std::string tar(1024, '\0');
  tar.replace(0, 12, "../../passwd");
  tar.replace(257, 5, "ustar");
  check_refused(kUnsupported, tar, {"tar", "nothing was run"});
  check_refused(kUnsupported, "\x80\x02" + kTwelve, {"bare pickle"});
}

TEST_CASE("pytorch: every prefix and many damaged copies end in an error or a model", "[pytorch][hostile]") {
  const Scratch scratch;
  const std::string bytes = file_of({{"a", tensor_of("0", 12, 0, {3, 4}, {4, 1})}});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    INFO(size);
    CHECK_THROWS_AS(open_file(scratch, bytes.substr(0, size)), Error);
  }
  std::mt19937 random(2);
  int opened = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string damaged = bytes;
    damaged[random() % damaged.size()] ^= static_cast<char>(1U << (random() % 8));
    try {
      const auto checkpoint = open_file(scratch, damaged);
      for (const auto& tensor : checkpoint.tensors) {
        std::vector<std::byte> out(std::min<std::uint64_t>(tensor.size_bytes, 1 << 20));
        files::read_stored(checkpoint, tensor, 0, out);
      }
      ++opened;
    } catch (const Error&) {
    }
  }
  CHECK(opened > 100);  // flips of values, and of what nobody reads
  CHECK(opened < 3000);
}
