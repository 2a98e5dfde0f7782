// What the files beside tokenizer.model say: added tokens, and what stands before and after a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace halfbyte::models::sentencepiece {

struct AddedToken {
  std::string text;
  bool is_special = false;      // gives nothing when special tokens are skipped
  bool is_parsed = true;        // recognised in texts
  bool strips_left = false;     // takes the spaces before it
  bool strips_right = false;    // and after it
  bool is_single_word = false;  // only where no character but a space is beside it
};

struct Config {
  std::map<std::int64_t, AddedToken>
      added;  // by id, which may be a piece's; from added_tokens_decoder, added_tokens.json
  bool adds_bos = true;
  bool adds_eos = false;
  bool is_legacy = true;          // every part between special tokens begins with a space; else only the text does
  bool adds_prefix_space = true;  // where not legacy
  bool is_chatglm = false;        // ChatGLM2 and ChatGLM3
  std::optional<std::string> bos, eos, unknown;
  std::vector<std::string> special;  // other tokens that are special: pad_token, additional_special_tokens
};

// Reads tokenizer_config.json (`path`, which need not exist) and added_tokens.json, special_tokens_map.json and
// config.json beside it. Errors: kCorrupt naming the file.
Config read_config(const std::filesystem::path& path);

}  // namespace halfbyte::models::sentencepiece
