// "DIR" or "DIR:WEIGHT": how adapters are named on the command line.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/cli/option_parser.h"

namespace halfbyte::cli {

// --adapter: adapters beside a model's weights, with how much of each is wanted; repeatable.
DeclaredOption declare_adapters(OptionParser& parser, std::vector<std::string>& words, const std::string& help);

// The directory and its weight: what follows the last ':' where that is a number and nothing of the whole name exists,
// else 1.
std::pair<std::string, double> weighted_adapter(const std::string& word);

// Of an interface that takes a list of such: a struct of two members, in their order.
template <class Weighted>
std::vector<Weighted> weighted_adapters(const std::vector<std::string>& words) {
  std::vector<Weighted> out;
  for (const std::string& word : words) {
    auto [directory, weight] = weighted_adapter(word);
    out.push_back({std::move(directory), weight});
  }
  return out;
}

}  // namespace halfbyte::cli
