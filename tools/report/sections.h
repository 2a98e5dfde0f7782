// The parts of a report's page, each from its piece of the data; those without data are left out.
#pragma once

#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/report/page.h"

namespace halfbyte::cli {

// `report`: as report_page() takes it.
std::vector<Section> sections_of(const nlohmann::ordered_json& report);

}  // namespace halfbyte::cli
