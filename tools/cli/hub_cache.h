// Models by the name that they have on Hugging Face's hub, where its cache on this machine has them.
#pragma once

#include <filesystem>
#include <string>

namespace halfbyte::cli {

enum class CheckpointUse { kModel, kTokenizer };  // a tokenizer needs no weights

// Where the hub's own programs keep what they download: as HF_HUB_CACHE, HF_HOME and XDG_CACHE_HOME say, else below the
// home directory.
std::filesystem::path hub_cache();

// What stands for a checkpoint on a command line, as a path. A path that exists is itself, and so is what no name of
// the hub looks like. "org/model" and "org/model@revision" (a branch, a tag or a commit) are the cache's snapshot of
// it. Errors: kNotFound with the command that downloads it, where the cache has it not or lacks a file of it, which it
// names.
std::string local_checkpoint(const std::string& word, CheckpointUse use);

}  // namespace halfbyte::cli
