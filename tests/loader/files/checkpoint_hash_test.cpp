// The hash by which a checkpoint is known again: what it is made of, and that each byte changes it.
#include <halfbyte/verify.h>

#include "loader/files/checkpoint_hash.h"
#include "loader/files/hash.h"
#include "loader/files/verify.h"
#include "tests/loader/files/packed_checkpoint.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

std::string hash_of(const fs::path& path) { return verify(path).hash; }

// Of the file's length and header.
std::string header_hash(const fs::path& file) {
  const std::string text = read_text(file);
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  return files::hash_hex(text.substr(0, sizeof length + length));
}

}  // namespace

TEST_CASE("checkpoint hash: that of the text in docs/format.md", "[verify][hash]") {
  const Scratch scratch;
  write_packed_checkpoint(scratch / "m");
  write_text(scratch / "m" / "tokenizer.json", "{}");
  const auto tensors = packed_tensors();
  const std::string text =
      "halfbyte checkpoint 1\n"
      "tensor \"a.weight\" sym_int4 [2,32] " +
      files::hash_hex(tensors[0].bytes + tensors[1].bytes + tensors[2].bytes) +
      "\n"
      "tensor \"n.weight\" float32 [3] " +
      files::hash_hex(tensors[3].bytes) + "\nheader \"model.safetensors\" " +
      header_hash(scratch / "m" / "model.safetensors") + "\nfile \"config.json\" " +
      files::hash_hex(read_text(scratch / "m" / "config.json")) + "\nfile \"halfbyte.json\" " +
      files::hash_hex(read_text(scratch / "m" / "halfbyte.json")) + "\nfile \"tokenizer.json\" " +
      files::hash_hex("{}") + "\n";
  CHECK(hash_of(scratch / "m") == files::hash_hex(text));
  fs::rename(scratch / "m", scratch / "elsewhere");
  CHECK(hash_of(scratch / "elsewhere") == files::hash_hex(text));
}

TEST_CASE("checkpoint hash: every byte of an original without hashes counts", "[verify][hash]") {
  const Scratch scratch;
  write_checkpoint(scratch / "m", {float_tensor("a.weight", {2, 4}), float_tensor("n.weight", {3})},
                   {{"model_type", "foo"}});
  write_text(scratch / "m" / "tokenizer.json", R"({"a": 1})");
  const std::string wanted = hash_of(scratch / "m");
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json"}) {
    const fs::path file = scratch / "m" / name;
    const std::string sound = read_text(file);
    for (std::size_t at = 0; at < sound.size(); ++at) {
      INFO(name << ", byte " << at);
      std::string changed = sound;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      write_text(file, changed);
      std::string found;
      try {
        found = hash_of(scratch / "m");
      } catch (const Error&) {  // no checkpoint any more
      }
      CHECK(found != wanted);
    }
    write_text(file, sound);
  }
  CHECK(hash_of(scratch / "m") == wanted);
  write_text(scratch / "m" / "merges.txt", "");
  CHECK(hash_of(scratch / "m") != wanted);
}

TEST_CASE("checkpoint hash: another one is refused with both", "[verify][hash]") {
  const Scratch scratch;
  write_packed_checkpoint(scratch / "m");
  const Verified found = verify(scratch / "m");
  CHECK(found.problems.empty());
  CHECK(found.tensors_hashed == 2);
  CHECK(verify(scratch / "m", {.expect = found.hash}).hash == found.hash);
  const std::string other(32, 'a');
  check_error(ErrorCode::kCorrupt, {"/m ", found.hash, other}, [&] { verify(scratch / "m", {.expect = other}); });
  for (const std::string& none : {found.hash.substr(1), std::string(32, 'g'), std::string(32, 'A')})
    check_error(ErrorCode::kInvalidArgument, {none, "no hash"}, [&] { verify(scratch / "m", {.expect = none}); });
}

TEST_CASE("checkpoint identity: hashes on record say it, wherever the files are", "[hash]") {
  const Scratch scratch;
  write_packed_checkpoint(scratch / "m");
  const auto identity = [](const fs::path& path) { return files::checkpoint_identity(files::open_checkpoint(path)); };
  const std::string wanted = identity(scratch / "m").hash;
  CHECK(files::is_hash_hex(wanted));
  CHECK(identity(scratch / "m").knows_values);
  fs::copy(scratch / "m", scratch / "copy");
  fs::last_write_time(scratch / "copy" / "model.safetensors", fs::file_time_type::min());
  CHECK(identity(scratch / "copy").hash == wanted);
  const std::string config = read_text(scratch / "m" / "config.json");
  write_text(scratch / "copy" / "config.json", config + " \n");
  CHECK(identity(scratch / "copy").hash == wanted);
  write_text(scratch / "copy" / "config.json", R"({"rope_theta": 5})");
  CHECK(identity(scratch / "copy").hash != wanted);
}

TEST_CASE("checkpoint identity: without hashes on record the files' times count", "[hash]") {
  const Scratch scratch;
  const fs::path file = scratch / "m" / "model.safetensors";
  write_checkpoint(scratch / "m", {float_tensor("a.weight", {2, 4})}, {{"model_type", "foo"}});
  const auto identity = [&] { return files::checkpoint_identity(files::open_checkpoint(scratch / "m")); };
  const auto before = identity();
  CHECK_FALSE(before.knows_values);
  CHECK(identity().hash == before.hash);
  const auto likeness = [](const fs::path& path) { return files::checkpoint_likeness(files::open_checkpoint(path)); };
  const std::string like = likeness(scratch / "m");
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  CHECK(identity().hash != before.hash);
  CHECK(likeness(scratch / "m") == like);
  fs::copy(scratch / "m", scratch / "copy");
  CHECK(likeness(scratch / "copy") == like);
  std::string bytes = read_text(file);
  bytes.back() ^= 1;
  write_text(scratch / "copy" / "model.safetensors", bytes);
  CHECK(likeness(scratch / "copy") != like);
}
