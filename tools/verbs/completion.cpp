// halfbyte completion SHELL, halfbyte man: what shells and `man` know of the program, made from its options.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/verbs/program_options.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

struct Shell {
  const char* name;
  std::string (*script)(std::span<const VerbHelp> verbs);
};
constexpr Shell kShells[] = {{"bash", completion_of_bash}, {"zsh", completion_of_zsh}, {"fish", completion_of_fish}};

std::vector<std::string> shell_names() {
  std::vector<std::string> out;
  for (const Shell& shell : kShells) out.emplace_back(shell.name);
  return out;
}

ExitStatus print(std::string text, const char* key, const CommonOptions& common) {
  if (common.is_json) {
    print_json({{key, text}});
  } else {
    text.erase(text.find_last_not_of('\n') + 1);
    print_line(text);
  }
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_completion(OptionParser& parser, const CommonOptions& common) {
  const auto name = std::make_shared<std::string>();
  parser.add_option("SHELL", *name, "whose completion to print").check(one_of(shell_names())).required();
  return [name, &common] {
    const auto shell = std::ranges::find(kShells, *name, [](const Shell& row) { return std::string(row.name); });
    return print(shell->script(program_options()), "script", common);
  };
}

Action prepare_man(OptionParser&, const CommonOptions& common) {
  return [&common] { return print(man_page(program_options()), "page", common); };
}

}  // namespace halfbyte::cli
