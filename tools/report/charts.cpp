#include "tools/report/charts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include <nlohmann/json.hpp>

#include "tools/cli/format.h"
#include "tools/report/html.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

// Units of the drawings: on a phone one of them is about a pixel.
constexpr double kWidth = 360, kHeight = 200, kLeft = 50, kRight = 10, kTop = 22, kBottom = 34;

std::string at(double value) { return fixed(value, 1); }

std::string label(double x, double y, const std::string& anchor, const std::string& words) {
  return "<text x=\"" + at(x) + "\" y=\"" + at(y) + "\" text-anchor=\"" + anchor + "\">" + escaped(words) + "</text>";
}

std::string rule(double x1, double y1, double x2, double y2, const std::string& kind) {
  return "<line class=\"" + kind + "\" x1=\"" + at(x1) + "\" y1=\"" + at(y1) + "\" x2=\"" + at(x2) + "\" y2=\"" +
         at(y2) + "\"/>";
}

std::string drawing(const std::string& title, const std::string& inside) {
  return "<svg viewBox=\"0 0 " + at(kWidth) + " " + at(kHeight) + "\" role=\"img\" aria-label=\"" + escaped(title) +
         "\">" + inside + "</svg>\n";
}

// "0.001", "3e-05".
std::string tick(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

// A range of values on a line of the drawing.
struct Axis {
  double low, high, begin, end;
  double of(double value) const {
    return begin + (end - begin) * (std::clamp(value, low, high) - low) / std::max(high - low, 1e-9);
  }
};

// Powers of ten, as many as fit.
std::string decades(const Axis& axis, const auto& draw) {
  std::string out;
  const double step = std::max(1.0, std::ceil((axis.high - axis.low) / 6));
  for (double power = std::ceil(axis.low); power <= axis.high + 1e-9; power += step)
    out += draw(axis.of(power), tick(std::pow(10, power)));
  return out;
}

struct Bins {
  double low = 0, high = 1, most = 1;  // low and high as powers of ten
};

Bins range_of(const ordered_json& bins) {
  Bins out;
  bool is_first = true;
  for (const ordered_json& bin : bins) {
    if (bin["tokens"].get<double>() == 0) continue;
    if (is_first) out.low = std::log10(bin["from"].get<double>());
    is_first = false;
    out.high = std::log10(bin["to"].get<double>());
    out.most = std::max(out.most, bin["tokens"].get<double>());
  }
  return out;
}

std::string title_of(const std::string& module) {
  if (module.empty()) return "whole layer";
  const std::string last = escaped(module.substr(module.rfind('.') + 1));
  return module.find(".*.") == std::string::npos ? last : last + " (worst expert)";
}

// Experts share a column, which shows the worst of them: "experts.7.w1" is "experts.*.w1".
std::string without_numbers(const std::string& module) {
  std::string out;
  for (std::size_t i = 0; i < module.size(); ++i) {
    const bool is_digit = module[i] >= '0' && module[i] <= '9', is_part = i > 0 && module[i - 1] == '.';
    if (is_digit && is_part) {
      const std::size_t end = module.find_first_not_of("0123456789", i);
      if (end != std::string::npos && module[end] == '.') {
        out += "*";
        i = end - 1;
        continue;
      }
    }
    out += module[i];
  }
  return out;
}

}  // namespace

std::string histogram(const ordered_json& bins, const std::vector<Mark>& marks) {
  const Bins range = range_of(bins);
  const Axis x{range.low, range.high, kLeft, kWidth - kRight}, y{0, range.most, kHeight - kBottom, kTop};
  std::string out = rule(kLeft, y.begin, kWidth - kRight, y.begin, "axis");
  for (const ordered_json& bin : bins) {
    const auto tokens = bin["tokens"].get<double>();
    if (tokens == 0) continue;
    const double left = x.of(std::log10(bin["from"].get<double>())), right = x.of(std::log10(bin["to"].get<double>()));
    out += "<rect class=\"bar\" x=\"" + at(left + 0.5) + "\" y=\"" + at(y.of(tokens)) + "\" width=\"" +
           at(std::max(right - left - 1, 1.0)) + "\" height=\"" + at(y.begin - y.of(tokens)) + "\"><title>" +
           fixed(tokens, 0) + " tokens from " + short_number(bin["from"]) + " to " + short_number(bin["to"]) +
           "</title></rect>";
  }
  double height = kTop - 12;
  for (const Mark& mark : marks) {
    if (mark.value <= 0) continue;
    const double place = x.of(std::log10(mark.value));
    out += rule(place, height + 2, place, y.begin, "mark") + label(place - 2, height + 6, "end", mark.name);
    height += 11;
  }
  out += decades(x, [&](double place, const std::string& words) {
    return rule(place, y.begin, place, y.begin + 4, "axis") + label(place, y.begin + 15, "middle", words);
  });
  out += label(kWidth - kRight, kHeight - 4, "end", "KL divergence of a token, nats");
  out += label(kLeft - 4, y.of(range.most) + 8, "end", fixed(range.most, 0)) + label(kLeft - 4, y.begin, "end", "0");
  return drawing("Histogram of the tokens' KL divergences", out);
}

namespace {

// Of all choices with their intervals, and some room.
std::pair<Axis, Axis> axes_of(const std::vector<Choice>& choices) {
  Axis x{1e9, 0, kLeft, kWidth - kRight}, y{1e9, -1e9, kHeight - kBottom, kTop};
  for (const Choice& choice : choices) {
    x.low = std::min(x.low, choice.bits - 0.5);
    x.high = std::max(x.high, choice.bits + 0.5);
    y.low = std::min(y.low, std::log10(std::max(choice.low, 1e-7)) - 0.1);
    y.high = std::max(y.high, std::log10(std::max(choice.high, 1e-7)) + 0.15);
  }
  return {x, y};
}

// Labels beside their points, one below the other where they would touch.
class Labels {
 public:
  std::string beside(double x, double y, const std::string& words) {
    const bool is_left = x > kWidth * 0.6;
    while (std::ranges::any_of(taken_, [&](double other) { return std::abs(other - y) < 10; })) y += 2;
    taken_.push_back(y);
    return label(x + (is_left ? -8 : 8), y + 3, is_left ? "end" : "start", words);
  }

 private:
  std::vector<double> taken_;
};

}  // namespace

std::string size_against_loss(const std::vector<Choice>& choices) {
  const auto [x, y] = axes_of(choices);
  const auto height = [&y = y](double kl) { return y.of(std::log10(std::max(kl, 1e-7))); };
  std::string out = rule(kLeft, y.begin, kWidth - kRight, y.begin, "axis") + rule(kLeft, y.begin, kLeft, kTop, "axis");
  const double step = std::max(1.0, std::ceil((x.high - x.low) / 8));
  for (double bits = std::ceil(x.low); bits <= x.high; bits += step) {
    out += rule(x.of(bits), y.begin, x.of(bits), y.begin + 4, "axis") +
           label(x.of(bits), y.begin + 15, "middle", fixed(bits, 0));
  }
  for (const double power : {y.low, (y.low + y.high) / 2, y.high})
    out += label(kLeft - 4, y.of(power) + 3, "end", tick(std::pow(10, power)));
  Labels labels;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    const double place = x.of(choice.bits);
    out += rule(place, height(choice.low), place, height(choice.high), "reach");
    out += "<circle class=\"" + std::string(i == 0 ? "this" : "other") + "\" cx=\"" + at(place) + "\" cy=\"" +
           at(height(choice.kl)) + "\" r=\"4\"><title>" + escaped(choice.name) + ": " + fixed(choice.bits, 2) +
           " bits, KL " + short_number(choice.kl) + "</title></circle>";
    out += labels.beside(place, height(choice.kl), choice.name);
  }
  out += label(kWidth - kRight, kHeight - 4, "end", "bits a weight") +
         label(2, 10, "start", "KL divergence, nats a token");
  return drawing("Bits a weight against KL divergence", out);
}

namespace {

// At most `most` points, each the mean of as many neighbours.
std::vector<Loss> thinned(const std::vector<Loss>& all, std::size_t most) {
  const std::size_t each = (all.size() + most - 1) / most;
  std::vector<Loss> out;
  for (std::size_t begin = 0; begin < all.size(); begin += each) {
    const std::size_t end = std::min(begin + each, all.size());
    Loss mean{0, 0};
    for (std::size_t i = begin; i < end; ++i) {
      mean.step += all[i].step / static_cast<double>(end - begin);
      mean.loss += all[i].loss / static_cast<double>(end - begin);
    }
    out.push_back(mean);
  }
  return out;
}

}  // namespace

std::string loss_curve(const std::vector<Loss>& steps, const std::vector<Loss>& evaluations) {
  constexpr std::size_t kPoints = 300;
  const std::vector<Loss> drawn = thinned(steps, kPoints);
  Axis x{0, 1, kLeft, kWidth - kRight}, y{1e9, 0, kHeight - kBottom, kTop};
  for (const std::vector<Loss>* all : {&drawn, &evaluations}) {
    for (const Loss& one : *all) {
      x.high = std::max(x.high, one.step);
      y.low = std::min(y.low, one.loss);
      y.high = std::max(y.high, one.loss);
    }
  }
  std::string out = rule(kLeft, y.begin, kWidth - kRight, y.begin, "axis") + rule(kLeft, y.begin, kLeft, kTop, "axis");
  for (std::size_t i = 1; i < drawn.size(); ++i)
    out += rule(x.of(drawn[i - 1].step), y.of(drawn[i - 1].loss), x.of(drawn[i].step), y.of(drawn[i].loss), "reach");
  for (const Loss& one : evaluations)
    out += "<circle class=\"this\" cx=\"" + at(x.of(one.step)) + "\" cy=\"" + at(y.of(one.loss)) +
           "\" r=\"3\"><title>after step " + fixed(one.step, 0) + ": " + fixed(one.loss, 4) +
           " on what is not learnt</title></circle>";
  for (const double loss : {y.low, (y.low + y.high) / 2, y.high})
    out += label(kLeft - 4, y.of(loss) + 3, "end", fixed(loss, 3));
  out += label(kLeft, y.begin + 15, "middle", "0") + label(kWidth - kRight, y.begin + 15, "end", fixed(x.high, 0));
  out += label(kWidth - kRight, kHeight - 4, "end", "steps") + label(2, 10, "start", "loss, nats a token");
  return drawing("Loss by steps", out);
}

namespace {

struct Heat {
  std::vector<std::string> modules;
  std::map<std::int64_t, std::map<std::string, double>> values;  // by layer, then by module
  double largest = 1e-12;
};

Heat heat_of(const ordered_json& layers, const std::string& which) {
  Heat out;
  for (const ordered_json& row : layers) {
    if (row["layer"].is_null() || row[which].is_null()) continue;
    const std::string module = without_numbers(row["module"]);
    if (std::ranges::find(out.modules, module) == out.modules.end()) out.modules.push_back(module);
    double& value = out.values[row["layer"].get<std::int64_t>()][module];
    value = std::max(value, row[which].get<double>());
    out.largest = std::max(out.largest, value);
  }
  return out;
}

}  // namespace

std::string heat_map(const ordered_json& layers, const std::string& which) {
  const Heat heat = heat_of(layers, which);
  std::string head = element("th", "scope=\"col\"", "layer"), body;
  for (const std::string& module : heat.modules) head += element("th", "scope=\"col\"", title_of(module));
  for (const auto& [layer, cells] : heat.values) {
    std::string line = element("th", "scope=\"row\"", std::to_string(layer));
    for (const std::string& module : heat.modules) {
      const auto found = cells.find(module);
      line += found == cells.end() ? element("td", "")
                                   : element("td", "style=\"--v:" + fixed(found->second / heat.largest, 3) + "\"",
                                             fixed(100 * found->second, 1));
    }
    body += element("tr", line) + "\n";
  }
  return element("div", "class=\"wide\"",
                 element("table", "class=\"heat\"", element("thead", element("tr", head)) + element("tbody", body)));
}

}  // namespace halfbyte::cli
