// Options in messages, as the command line has them.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include <halfbyte/error.h>

#include "tests/catch.h"
#include "tools/cli/spelling.h"
#include "tools/cli/verb.h"

using namespace halfbyte;
using namespace halfbyte::cli;

namespace {

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  REQUIRE(pipe);
  std::string out;
  char block[4096];
  while (const std::size_t count = std::fread(block, 1, sizeof block, pipe.get())) out.append(block, count);
  return out;
}

// "--to", "-v" ... of a verb's --help.
std::set<std::string> flags_in(const std::string& help) {
  std::set<std::string> out;
  std::size_t end = 0;
  for (std::size_t at = help.find_first_of('-'); at != std::string::npos; at = help.find_first_of('-', end)) {
    end = help.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at);
    if (end == std::string::npos) break;
    out.insert(help.substr(at, end - at));
  }
  return out;
}

}  // namespace

TEST_CASE("spelling: options are flags, operations are commands", "[cli]") {
  CHECK(flag(Option::kMemoryLimit) == "--memory-limit");
  CHECK(flag(Option::kFormat) == "--to");
  CHECK(flag(Option::kOverrides) == "--dtype-for");
  const OperationCall quantize{Operation::kQuantize, {"X", "Q"}, {{Option::kScheme, "nf4"}, {Option::kOverwrite, ""}}};
  CHECK(said("first `" + Text(quantize) + "`") == "first `halfbyte quantize X Q --scheme nf4 --overwrite`");
  CHECK(said("see `" + Text(Operation::kDoctor) + "`") == "see `halfbyte doctor`");
}

TEST_CASE("spelling: errors of ours are said with flags, and names of files as they are", "[cli]") {
  const Error error(ErrorCode::kAlreadyExists, "overwrite: exists; " + Option::kOverwrite + " replaces it");
  CHECK(said(error) == "overwrite: exists; --overwrite replaces it");
  CHECK(error.what() == std::string("overwrite: exists; overwrite replaces it"));
  CHECK(said(std::runtime_error("overwrite")) == "overwrite");
  CHECK(cli::flags_in(error.text()) == std::vector<std::string>{"--overwrite"});
  CHECK(cli::flags_in(Text("--keep of a file")).empty());
  CHECK(said(std::vector<Text>{"a", "b " + Option::kDryRun}) == std::vector<std::string>{"a", "b --dry-run"});
}

TEST_CASE("spelling: every flag and verb that a message can name is there", "[cli]") {
  const bool has_models = std::filesystem::exists(model_program());
  std::set<std::string> flags, names;
  for (const VerbInfo& verb : verbs()) {
    names.emplace(verb.name);
    if (verb.home == Home::kModel && !has_models) continue;
    flags.merge(flags_in(output_of("'" HALFBYTE_PROGRAM "' " + std::string(verb.name) + " --help")));
  }
  for (const Option option : options()) {
    const bool is_of_models = option == Option::kChatTemplate || option == Option::kInsecure || option == Option::kKeys;
    if (!has_models && is_of_models) continue;
    CAPTURE(flag(option));
    CHECK(flags.contains(flag(option)));
  }
  for (const Operation operation : operations()) CHECK(names.contains(std::string(name(operation))));
}
