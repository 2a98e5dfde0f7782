#include "tools/server/api/answer_fields.h"

#include <charconv>

namespace halfbyte::server {
namespace {

constexpr std::int64_t kAny = 1LL << 53;

std::vector<std::string> stops_of(const Body& body) {
  const Json* const stop = body.find("stop");
  std::vector<std::string> out;
  if (!stop) return out;
  if (stop->is_string()) out.push_back(stop->get<std::string>());
  if (!stop->is_string() && !stop->is_array()) refuse("stop", "is " + kind_of(*stop) + "; expected a string or a list");
  if (stop->size() > static_cast<std::size_t>(kMostStops))
    refuse("stop", "has more than " + std::to_string(kMostStops) + " texts");
  for (const Json& one : stop->is_array() ? *stop : Json::array()) {
    if (!one.is_string()) refuse("stop", "has " + kind_of(one) + " in it; expected strings");
    out.push_back(one.get<std::string>());
  }
  for (const std::string& text : out) {
    if (text.empty() || text.size() > 1024)
      refuse("stop", "has a text of " + std::to_string(text.size()) + " bytes; expected 1 to 1024");
  }
  return out;
}

std::vector<std::pair<std::int64_t, float>> bias_of(const Body& body, std::int64_t vocabulary) {
  const Json* const bias = body.find("logit_bias");
  std::vector<std::pair<std::int64_t, float>> out;
  if (!bias) return out;
  if (!bias->is_object()) refuse("logit_bias", "is " + kind_of(*bias) + "; expected an object");
  for (const auto& [name, value] : bias->items()) {
    std::int64_t token = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), token);
    if (error != std::errc() || end != name.data() + name.size() || token < 0 || token >= vocabulary)
      refuse("logit_bias", "has a key that is no token id of 0 to " + std::to_string(vocabulary - 1));
    if (!value.is_number() || !(std::abs(value.get<double>()) <= 100))
      refuse("logit_bias", "has " + kind_of(value) + " in it; expected numbers from -100 to 100");
    out.emplace_back(token, value.get<float>());
  }
  return out;
}

bool includes_usage(const Body& body, bool streams) {
  const Json* const options = body.find("stream_options");
  if (!options) return false;
  if (!streams) refuse("stream_options", "is for \"stream\": true alone");
  if (!options->is_object()) refuse("stream_options", "is " + kind_of(*options) + "; expected an object");
  const auto wanted = options->find("include_usage");
  if (wanted == options->end() || wanted->is_null()) return false;
  if (!wanted->is_boolean()) refuse("stream_options", "has an 'include_usage' that is neither true nor false");
  return wanted->get<bool>();
}

}  // namespace

AnswerFields answer_fields_of(const Body& body, const ServedModel& model) {
  AnswerFields out;
  models::Sampling& sampling = out.sampling;
  sampling.temperature = body.number("temperature", 0, 2).value_or(sampling.temperature);
  sampling.top_p = body.number("top_p", 0, 1).value_or(sampling.top_p);
  if (sampling.top_p == 0) sampling.temperature = 0, sampling.top_p = 1;  // the likeliest token alone
  sampling.top_k = body.integer("top_k", -1, kAny).value_or(0);
  if (sampling.top_k < 0) sampling.top_k = 0;  // as others write "all"
  sampling.min_p = body.number("min_p", 0, 1).value_or(0);
  sampling.presence_penalty = body.number("presence_penalty", -2, 2).value_or(0);
  sampling.frequency_penalty = body.number("frequency_penalty", -2, 2).value_or(0);
  sampling.repetition_penalty = body.number("repetition_penalty", 0.01, 10).value_or(1);
  sampling.logit_bias = bias_of(body, model.tokenizer->vocab_size());
  if (const auto seed = body.integer("seed", -kAny, kAny)) out.seed = static_cast<std::uint64_t>(*seed);
  out.max_tokens = body.integer("max_tokens", 0, kAny);
  out.count = body.integer("n", 1, kMostAnswers).value_or(1);
  out.stops = stops_of(body);
  out.ignores_eos = body.boolean("ignore_eos").value_or(false);
  out.streams = body.boolean("stream").value_or(false);
  out.includes_usage = includes_usage(body, out.streams);
  return out;
}

}  // namespace halfbyte::server
