// The report's drawings: inline SVG, coloured by the page's style sheet.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace halfbyte::cli {

// Tokens by their divergence, a bar a bin. `bins`: [{from, to, tokens}], of growing width; `marks`: named divergences.
struct Mark {
  std::string name;
  double value;
};
std::string histogram(const nlohmann::ordered_json& bins, const std::vector<Mark>& marks);

// Bits a weight against divergence. The first choice is the one that the report is about.
struct Choice {
  std::string name;
  double bits = 0, kl = 0, low = 0, high = 0;
};
std::string size_against_loss(const std::vector<Choice>& choices);

// What a training cost: a line of its steps, and marks of what it did not learn from. Thousands of steps are drawn as
// means of their neighbours.
struct Loss {
  double step, loss;
};
std::string loss_curve(const std::vector<Loss>& steps, const std::vector<Loss>& evaluations);

// A table of layers by modules, a cell darker the larger its error. `layers`: as evaluate's JSON has them; `which`:
// "alone" or "together".
std::string heat_map(const nlohmann::ordered_json& layers, const std::string& which);

}  // namespace halfbyte::cli
