// The one page that a report is: markup and style around its sections.
#pragma once

#include <string>
#include <vector>

namespace halfbyte::cli {

struct Section {
  std::string title;  // text
  std::string body;   // HTML
};

// A whole document. It refers to nothing outside itself and has no script. `title` and `summary` are text.
std::string page(const std::string& title, const std::string& summary, const std::vector<Section>& sections);

}  // namespace halfbyte::cli
