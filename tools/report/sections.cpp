#include "tools/report/sections.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "tools/cli/format.h"
#include "tools/report/charts.h"
#include "tools/report/html.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

std::string quiet(const std::string& words) { return element("p", "class=\"quiet\"", escaped(words)) + "\n"; }

std::string bytes_of(const ordered_json& value) { return human_bytes(value.get<std::uint64_t>()); }

std::vector<std::string> figure(const std::string& name, const ordered_json& value, int digits, double unit = 1) {
  if (!value.is_object()) return {escaped(name), fixed(value.get<double>() * unit, digits), ""};
  const auto shown = [&](const char* key) { return fixed(value[key].get<double>() * unit, digits); };
  return {escaped(name), shown("value"), shown("low") + " to " + shown("high")};
}

std::string figures(const ordered_json& report) {
  const ordered_json& found = report["evaluation"];
  HtmlTable out{{"", "value", "95 % confidence"}, {false, true, true}, {}};
  if (found.contains("kl_mean")) {
    out.rows.push_back(figure("KL divergence, mean, nats a token", found["kl_mean"], 5));
    out.rows.push_back(figure("median token", found["kl_median"], 5));
    out.rows.push_back(figure("99 % of tokens below", found["kl_p99"], 4));
    out.rows.push_back(figure("99.9 % of tokens below", found["kl_p999"], 4));
    out.rows.push_back(figure("largest", found["kl_largest"], 4));
    out.rows.push_back(figure("same first choice, %", found["top1_agreement"], 2, 100));
    out.rows.push_back(figure("of the original's five likeliest, shared, %", found["top5_agreement"], 2, 100));
    out.rows.push_back(figure("perplexity by the original's", found["perplexity_ratio"], 4));
    out.rows.push_back(figure("perplexity of the original", found["original_perplexity"], 3));
  }
  out.rows.push_back(figure("perplexity", found["perplexity"], 3));
  return table(out) +
         quiet("Over " + counted(found["tokens"], "token") + " in " + counted(found["windows"], "window") + " of " +
               counted(found["context"], "token") + ". The interval of a mean is Student's over the means of windows.");
}

Choice choice_of(const ordered_json& checkpoint, const ordered_json& evaluation) {
  const ordered_json& kl = evaluation["kl_mean"];
  return {checkpoint["name"], checkpoint["bits_per_weight"], kl["value"], kl["low"], kl["high"]};
}

std::string comparison(const ordered_json& report) {
  std::vector<Choice> choices = {choice_of(report["checkpoint"], report["evaluation"])};
  HtmlTable out{{"checkpoint", "size", "bits a weight", "KL divergence", "same first choice"},
                {false, true, true, true, true},
                {}};
  const auto add = [&](const ordered_json& checkpoint, const ordered_json& evaluation) {
    out.rows.push_back({element("span", "class=\"name\"", escaped(checkpoint["name"].get<std::string>())),
                        bytes_of(checkpoint["bytes"]), fixed(checkpoint["bits_per_weight"], 2),
                        fixed(evaluation["kl_mean"]["value"], 5),
                        fixed(100 * evaluation["top1_agreement"]["value"].get<double>(), 2) + " %"});
  };
  add(report["checkpoint"], report["evaluation"]);
  for (const ordered_json& other : report["compared"]) {
    choices.push_back(choice_of(other["checkpoint"], other["evaluation"]));
    add(other["checkpoint"], other["evaluation"]);
  }
  return size_against_loss(choices) + table(out);
}

std::string divergences(const ordered_json& report) {
  const ordered_json& found = report["evaluation"];
  return histogram(found["kl_histogram"], {{"median", found["kl_median"]}, {"99 %", found["kl_p99"]}}) +
         quiet("Most tokens lose little; what is far to the right is listed below in its text.");
}

std::string layers(const ordered_json& report) {
  const ordered_json& rows = report["evaluation"]["layers"];
  return quiet(
             "Relative RMS error of what each product gives, in %, over 8 windows. The stronger the colour, the "
             "larger.") +
         element("h3", "Alone: given the original's inputs") + heat_map(rows, "alone") +
         element("h3", "Together: after all that was lost before") + heat_map(rows, "together");
}

// "model.layers.3.mlp.up_proj.weight" as the row of a heat map; null: of no layer, or without an error.
ordered_json weight_row(const ordered_json& tensor) {
  constexpr std::size_t kMostDigits = 6;
  const std::string name = tensor["name"];
  if (tensor["rel_rmse"].is_null()) return nullptr;
  for (std::size_t at = name.find('.'); at != std::string::npos; at = name.find('.', at + 1)) {
    const std::size_t end = name.find_first_not_of("0123456789", at + 1);
    if (end == at + 1 || end == std::string::npos || name[end] != '.' || end - at - 1 > kMostDigits) continue;
    std::string module = name.substr(end + 1);
    if (module.ends_with(".weight")) module.resize(module.size() - 7);
    return {{"layer", std::stoll(name.substr(at + 1))}, {"module", module}, {"weights", tensor["rel_rmse"]}};
  }
  return nullptr;
}

ordered_json weight_rows(const ordered_json& report) {
  ordered_json out = ordered_json::array();
  for (const ordered_json& tensor : report["checkpoint"]["tensors"]) {
    ordered_json row = weight_row(tensor);
    if (!row.is_null()) out.push_back(std::move(row));
  }
  return out;
}

std::string weights(const ordered_json& report) {
  return quiet(
             "Relative RMS error of the weights themselves, in %. It does not say what the model lost: codes that were "
             "calibrated have larger errors and a better model. halfbyte evaluate measures what was lost.") +
         heat_map(weight_rows(report), "weights");
}

std::string percent_of(const ordered_json& log_probability) {
  const double percent = 100 * std::exp(log_probability.get<double>());
  return (percent >= 0.1 ? fixed(percent, 1) : short_number(percent)) + " %";
}

std::string quoted(const ordered_json& token) {
  return "\xE2\x80\x9C" + escaped_token(token.get<std::string>()) + "\xE2\x80\x9D";
}

std::string worst_tokens(const ordered_json& report) {
  std::string items;
  for (const ordered_json& worst : report["evaluation"]["worst_tokens"]) {
    const std::string text = escaped_token(worst["before"].get<std::string>()) +
                             element("mark", escaped_token(worst["token"].get<std::string>())) +
                             element("span", "class=\"quiet\"", escaped_token(worst["after"].get<std::string>()));
    items += element("li", element("div", "class=\"text\"", text) +
                               element("div", "class=\"quiet\"",
                                       "KL " + short_number(worst["kl"]) + "; the marked token had " +
                                           percent_of(worst["original_log_probability"]) + ", has " +
                                           percent_of(worst["log_probability"]) + "; likeliest was " +
                                           quoted(worst["original_choice"]) + ", is " + quoted(worst["choice"]))) +
             "\n";
  }
  return element("ol", items);
}

std::string plan(const ordered_json& report) {
  HtmlTable out{{"tensor", "shape", "was", "is", "size", "weight error"}, {false, false, false, false, true, true}, {}};
  for (const ordered_json& tensor : report["checkpoint"]["tensors"]) {
    const std::string why = tensor["reason"];
    std::string stored = escaped(tensor["stored"].get<std::string>());
    if (!why.empty()) stored += " " + element("span", "class=\"quiet\"", escaped(why));
    out.rows.push_back({element("span", "class=\"name\"", escaped(tensor["name"].get<std::string>())),
                        human_shape(tensor["shape"].get<std::vector<std::int64_t>>()),
                        escaped(tensor["original_dtype"].get<std::string>()), stored, bytes_of(tensor["bytes"]),
                        tensor["rel_rmse"].is_null() ? "" : fixed(tensor["rel_rmse"], 3)});
  }
  return element("details",
                 element("summary", counted(static_cast<std::int64_t>(out.rows.size()), "tensor")) + table(out));
}

std::string tallies(const ordered_json& of, const std::string& title) {
  HtmlTable out{{title, "tensors", "values", "size"}, {false, true, true, true}, {}};
  for (const auto& [what, tally] : of.items()) {
    out.rows.push_back({escaped(what), std::to_string(tally["tensors"].get<std::int64_t>()),
                        human_count(tally["values"].get<std::uint64_t>()), bytes_of(tally["bytes"])});
  }
  return table(out);
}

std::string dtypes(const ordered_json& report) {
  return "<div class=\"two\"><div>" + tallies(report["checkpoint"]["stored"], "stored as") + "</div><div>" +
         tallies(report["checkpoint"]["original_dtypes"], "dtype before") + "</div></div>";
}

std::string provenance(const ordered_json& report) {
  HtmlTable out{{"", ""}, {false, false}, {}};
  for (const auto& [what, value] : report["provenance"].items()) {
    out.rows.push_back({escaped(what), element("span", "class=\"name\"",
                                               escaped(value.is_string() ? value.get<std::string>() : value.dump()))});
  }
  const ordered_json& source = report["checkpoint"]["source"];
  if (!source.is_null()) {
    for (const ordered_json& file : source["files"]) {
      const std::string words = file["name"].get<std::string>() + ", " + bytes_of(file["bytes"]) + ", XXH3 " +
                                file["xxh3_128"].get<std::string>();
      out.rows.push_back({"made of", element("span", "class=\"name\"", escaped(words))});
    }
  }
  return table(out);
}

bool is_compared(const ordered_json& report) {
  return !report["evaluation"].is_null() && report["evaluation"].contains("kl_mean");
}

struct SectionRow {
  const char* title;
  bool (*is_there)(const ordered_json& report);
  std::string (*body)(const ordered_json& report);
};

constexpr SectionRow kSections[] = {
    {"In figures", [](const ordered_json& report) { return !report["evaluation"].is_null(); }, figures},
    {"Size against loss", [](const ordered_json& report) { return is_compared(report) && !report["compared"].empty(); },
     comparison},
    {"How tokens differ", is_compared, divergences},
    {"Where it comes from",
     [](const ordered_json& report) { return is_compared(report) && report["evaluation"].contains("layers"); }, layers},
    {"Errors of the weights",
     [](const ordered_json& report) { return report["evaluation"].is_null() && !weight_rows(report).empty(); },
     weights},
    {"The worst tokens", is_compared, worst_tokens},
    {"What is stored how", [](const ordered_json&) { return true; }, dtypes},
    {"Tensor by tensor", [](const ordered_json&) { return true; }, plan},
    {"Provenance", [](const ordered_json&) { return true; }, provenance},
};

}  // namespace

std::vector<Section> sections_of(const ordered_json& report) {
  std::vector<Section> out;
  for (const SectionRow& row : kSections) {
    if (row.is_there(report)) out.push_back({row.title, row.body(report)});
  }
  return out;
}

}  // namespace halfbyte::cli
