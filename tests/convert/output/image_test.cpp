// The writer that every image goes through: the same bytes and hashes however many threads and files there are.
#include "convert/output/image.h"

#include <set>

#include <halfbyte/error.h>

#include "convert/output/stored_parts.h"
#include "loader/files/hash.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using namespace halfbyte::convert;

namespace {

std::vector<std::byte> varied_bytes(std::size_t count, unsigned seed) {
  std::vector<std::byte> out(count);
  for (std::byte& each : out) each = static_cast<std::byte>((seed = seed * 1664525U + 1013904223U) >> 24);
  return out;
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Record i has two tensors, the first of i * 3 MiB and a bit.
struct Made {
  std::vector<ImageRecord> records;
  std::vector<std::string> bytes;  // of each record, its parts one after another
};

Made make_records(std::size_t count) {
  Made out;
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = varied_bytes(i * (3 << 20) + 5, static_cast<unsigned>(i)), second = varied_bytes(64, 99);
    ImageRecord& record = out.records.emplace_back();
    record.parts = {output_tensor("r" + std::to_string(i) + ".a", Dtype::kUint8, {std::ssize(first)}),
                    output_tensor("r" + std::to_string(i) + ".b", Dtype::kUint8, {64})};
    record.source =
        stored_parts({std::make_shared<files::ConstantBytes>(first), std::make_shared<files::ConstantBytes>(second)});
    out.bytes.push_back(text_of(first) + text_of(second));
  }
  return out;
}

// Writes its one part in two pieces, the last one first.
class TwoPieces final : public ImageSource {
 public:
  std::size_t pieces() const override { return 2; }
  void write(std::size_t piece, const WritePart& write) const override {
    const std::string text = piece == 0 ? "cd" : "ab";
    write(0, piece == 0 ? 2 : 0, std::as_bytes(std::span(text)));
  }
};

}  // namespace

TEST_CASE("image: the same bytes and hashes for any number of threads", "[image]") {
  const Scratch scratch;
  const Made made = make_records(4);
  std::set<std::vector<std::pair<std::string, std::string>>> results;
  for (const int threads : {1, 2, 5}) {
    for (const bool is_hashed : {false, true}) {
      const Image image = lay_out_image(make_records(4).records, 4 << 20);
      CHECK(image.files.size() > 1);
      fs::create_directory(scratch / "out");
      std::uint64_t last = 0, all = 0;
      const auto progress = [&](std::uint64_t done, std::uint64_t total) {
        last = done;
        all = total;
      };
      const auto hashes =
          write_image(image, scratch / "out", {.threads = threads, .is_hashed = is_hashed, .progress = progress});
      CHECK(last == image.size_bytes);
      CHECK(all == image.size_bytes);
      REQUIRE(hashes.size() == (is_hashed ? 4U : 0U));
      for (std::size_t i = 0; i < hashes.size(); ++i) CHECK(hashes[i] == files::hash_hex(made.bytes[i]));
      results.insert(contents_of(scratch / "out"));
      fs::remove_all(scratch / "out");
    }
  }
  CHECK(results.size() == 1);
}

TEST_CASE("image: pieces may come in any order, into a file without a name of its own", "[image]") {
  const Scratch scratch;
  Image image;
  image.records.push_back({.parts = {}, .source = std::make_shared<TwoPieces>(), .places = {{0, 3, 4}}});
  image.files = {{.name = "", .tensors = {}, .header = "hea", .size_bytes = 8}};
  write_image(image, scratch / "file", {});
  CHECK(read_text(scratch / "file") == std::string("heaabcd\0", 8));
}

TEST_CASE("image: more files than are open at a time", "[image]") {
  const Scratch scratch;
  Made made = make_records(1);
  std::vector<ImageRecord> records;
  for (int i = 0; i < 150; ++i) {
    ImageRecord& record = records.emplace_back(made.records[0]);
    for (OutputTensor& part : record.parts) part.name += std::to_string(i);
  }
  const Image image = lay_out_image(std::move(records), 1);
  REQUIRE(image.files.size() == 150);
  write_image(image, scratch.path(), {.threads = 3});
  for (const auto& [name, text] : contents_of(scratch.path())) CHECK(text.ends_with(made.bytes[0].substr(0, 5)));
}

TEST_CASE("image: a stop is heard", "[image]") {
  const Scratch scratch;
  std::stop_source stop;
  const Image image = lay_out_image(make_records(3).records, 0);
  std::uint64_t seen = 0;
  check_error(ErrorCode::kInterrupted, {"stopped"}, [&] {
    write_image(image, scratch.path(),
                {.threads = 1,
                 .progress =
                     [&](std::uint64_t done, std::uint64_t) {
                       seen = done;
                       stop.request_stop();
                     },
                 .stop = stop.get_token()});
  });
  CHECK(seen < image.size_bytes);
}
