#include "tools/report/training.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "tools/cli/format.h"
#include "tools/report/charts.h"
#include "tools/report/html.h"
#include "tools/report/page.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

std::vector<Loss> losses_of(const ordered_json& done) {
  std::vector<Loss> out;
  for (const ordered_json& loss : done["losses"]) out.push_back({static_cast<double>(out.size() + 1), loss});
  return out;
}

std::vector<Loss> evaluations_of(const ordered_json& done) {
  std::vector<Loss> out;
  for (const ordered_json& one : done["evaluations"]) out.push_back({one["step"], one["loss"]});
  return out;
}

std::string summary_of(const ordered_json& done) {
  std::string out = counted(done["steps"].get<std::int64_t>(), "step") + ": loss " +
                    fixed(done["losses"].front().get<double>(), 4) + " -> " +
                    fixed(done["losses"].back().get<double>(), 4) + " nats a token";
  if (!done["evaluations"].empty())
    out += ", " + fixed(done["evaluations"].back()["loss"].get<double>(), 4) + " on the text that is not learnt";
  return out + ".";
}

// Of everything that is one value.
std::string values(const ordered_json& object) {
  HtmlTable out{{"what", "value"}, {false, true}, {}};
  for (const auto& [key, value] : object.items()) {
    if (!value.is_primitive()) continue;
    out.rows.push_back({escaped(key), escaped(value.is_string() ? value.get<std::string>() : value.dump())});
  }
  return table(out);
}

}  // namespace

std::string training_page(const ordered_json& done, const ordered_json& provenance) {
  return page("What " + done["destination"].get<std::string>() + " learnt", summary_of(done),
              {{"Loss", loss_curve(losses_of(done), evaluations_of(done))},
               {"In figures", values(done)},
               {"Provenance", values(provenance)}});
}

}  // namespace halfbyte::cli
