// Links in a model's folder: those of Hugging Face's cache are followed, those that lead out are refused by name.
#include "loader/files/links.h"

#include "loader/files/checkpoint.h"
#include "loader/files/tokenizer_directory.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::open_checkpoint;

namespace {

constexpr const char* kRevision = "models--org--name/snapshots/0123abcd";

// A snapshot as Hugging Face's library lays it out: every file is a link to ../../blobs/HASH.
void write_cache(const Scratch& scratch) {
  write_checkpoint(scratch / "plain", llama_tensors(), llama_config());
  write_text(scratch / "plain" / "tokenizer.json", "{}");
  fs::create_directories(scratch / "models--org--name" / "blobs");
  fs::create_directories(scratch / kRevision);
  for (const std::string& name : names_in(scratch / "plain")) {
    fs::rename(scratch / "plain" / name, scratch / "models--org--name" / "blobs" / ("hash-" + name));
    fs::create_symlink("../../blobs/hash-" + name, scratch / kRevision / name);
  }
}

void check_refused(const fs::path& model, const fs::path& link, const std::string& target) {
  fs::remove(model / link);
  fs::create_symlink(target, model / link);
  check_error(ErrorCode::kUnsupported, {link.string() + ": is a link to ", "outside of the model's folder"},
              [&] { open_checkpoint(model); });
}

}  // namespace

TEST_CASE("links: a snapshot in Hugging Face's cache is read", "[links]") {
  const Scratch scratch;
  write_cache(scratch);
  CHECK(open_checkpoint(scratch / kRevision).tensors.size() == llama_tensors().size());
  fs::create_directory_symlink(scratch / kRevision, scratch / "mine");
  const auto opened = open_checkpoint(scratch / "mine");  // the way to the folder is the user's
  CHECK(opened.architecture != nullptr);
  CHECK(opened.side_files == std::vector<fs::path>{"tokenizer.json"});
}

TEST_CASE("links: what stays in the folder is followed, and what leads nowhere is no file", "[links]") {
  const Scratch scratch;
  write_checkpoint(scratch / "m", llama_tensors(), llama_config());
  write_text(scratch / "m" / "parts" / "t", "{}");
  fs::create_symlink("parts/t", scratch / "m" / "tokenizer.json");
  fs::create_symlink(fs::canonical(scratch / "m" / "config.json"), scratch / "m" / "generation_config.json");
  fs::create_symlink("nowhere", scratch / "m" / "dangling.txt");
  fs::create_symlink("loop.txt", scratch / "m" / "loop.txt");
  CHECK(open_checkpoint(scratch / "m").side_files == std::vector<fs::path>{"generation_config.json", "tokenizer.json"});
}

TEST_CASE("links: what leads out of the folder is refused by name, whatever it is", "[links][hostile]") {
  const Scratch scratch;
  write_text(scratch / "secret", "root:x:0:0");
  write_checkpoint(scratch / "other", llama_tensors(), llama_config());
  for (const char* name : {"tokenizer.json", "config.json", "model.safetensors", "LICENSE", "halfbyte.json"}) {
    INFO(name);
    fs::remove_all(scratch / "m");
    write_checkpoint(scratch / "m", llama_tensors(), llama_config());
    const bool is_weights = std::string(name).ends_with(".safetensors");
    check_refused(scratch / "m", name, is_weights ? "../other/model.safetensors" : "../secret");
  }
  fs::remove_all(scratch / "m");
  write_checkpoint(scratch / "m", llama_tensors(), llama_config());
  fs::create_directory_symlink("..", scratch / "m" / "up");
  check_refused(scratch / "m", "tokenizer.json", "up/secret");
  check_refused(scratch / "m", "tokenizer.json", (scratch / "secret").string());
}

TEST_CASE("links: the cache's folder of one model is not that of another", "[links][hostile]") {
  const Scratch scratch;
  write_cache(scratch);
  write_text(scratch / "models--org--other" / "blobs" / "x", "{}");
  check_refused(scratch / kRevision, "tokenizer.json", "../../../models--org--other/blobs/x");
  write_text(scratch / "models--org--name-of-mine" / "x", "{}");
  check_refused(scratch / kRevision, "tokenizer.json", "../../../models--org--name-of-mine/x");
}

TEST_CASE("links: a shard that the index names under a hidden name is looked at too", "[links][hostile]") {
  const Scratch scratch;
  write_checkpoint(scratch / "other", {float_tensor("a", {1, 32})});
  write_text(scratch / "m" / "config.json", llama_config().dump());
  write_text(scratch / "m" / "model.safetensors.index.json", R"({"weight_map": {"a": ".hidden.safetensors"}})");
  check_refused(scratch / "m", ".hidden.safetensors", "../other/model.safetensors");
}

TEST_CASE("links: a tokenizer is looked at before it is read", "[links][hostile]") {
  const Scratch scratch;
  write_text(scratch / "secret", "root:x:0:0");
  write_checkpoint(scratch / "m", llama_tensors(), llama_config());
  fs::create_symlink("../secret", scratch / "m" / "tokenizer.json");
  for (const char* model : {"m", "m/model.safetensors"}) {
    check_error(ErrorCode::kUnsupported, {"tokenizer.json: is a link to "},
                [&] { files::TokenizerDirectory(scratch / model); });
  }
}
