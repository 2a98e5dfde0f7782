#include "tools/server/api/embedding.h"

#include <cmath>
#include <cstring>

#include "tools/server/api/completion_request.h"
#include "tools/server/api/shape.h"

namespace halfbyte::server {
namespace {

constexpr auto kFields =
    std::to_array<std::string_view>({"input", "model", "encoding_format", "dimensions", "pooling", "user"});
constexpr std::size_t kMostTexts = 2048;
// Texts of one request that the engine has at once.
constexpr std::size_t kAtOnce = 8;

void normalise(std::vector<float>& vector) {
  double sum = 0;
  for (const float value : vector) sum += static_cast<double>(value) * value;
  const double factor = sum > 0 ? 1 / std::sqrt(sum) : 0;
  for (float& value : vector) value = static_cast<float>(value * factor);
}

// Of the values' bytes, lowest first. Source: RFC 4648.
std::string base64_of(const std::vector<float>& vector) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes(vector.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), vector.data(), bytes.size());
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    const std::size_t there = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t j = 0; j < 4; ++j) out += j <= there ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

}  // namespace

EmbeddingRequest embedding_request_of(const Body& body, const ServedModel& model) {
  body.allow(kFields);
  if (body.find("dimensions")) refuse("dimensions", "is not supported: a vector has the model's hidden size");
  EmbeddingRequest out;
  const std::string format = body.string("encoding_format").value_or("float");
  if (format != "float" && format != "base64") refuse("encoding_format", "is neither \"float\" nor \"base64\"");
  out.as_base64 = format == "base64";
  const std::string pooling = body.string("pooling").value_or("mean");
  if (pooling != "mean" && pooling != "last") refuse("pooling", "is neither \"mean\" nor \"last\"");
  out.pooling = pooling == "mean" ? serving::Pooling::kMean : serving::Pooling::kLast;
  out.texts = prompts_of(body, "input", model);
  if (out.texts.size() > kMostTexts) refuse("input", "has more than " + std::to_string(kMostTexts) + " texts");
  return out;
}

Embedding::Embedding(std::shared_ptr<const ServedModel> model, std::shared_ptr<Exchange> exchange,
                     EmbeddingRequest request)
    : model_(std::move(model)),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      vectors_(request_.texts.size()),
      left_(request_.texts.size()) {}

void Embedding::start() {
  const std::lock_guard lock(mutex_);
  while (next_ < std::min(kAtOnce, request_.texts.size())) submit_next();
  exchange_->when_gone([self = shared_from_this()] { self->cancel(); });
}

// Errors: Problem 400, 429; those that were asked for before are cancelled.
void Embedding::submit_next() {
  const auto self = shared_from_this();
  const std::size_t i = next_++;
  serving::Request one{.prompt = request_.texts[i], .pooling = request_.pooling, .client = request_.client};
  one.on_vector = [self, i](std::vector<float> vector) { self->vectors_[i] = std::move(vector); };
  one.on_end = [self](const serving::AnswerEnd& end) { self->on_end(end); };
  try {
    const std::optional<serving::Ticket> ticket = model_->engine->submit(std::move(one));
    if (!ticket) throw Problem(429, "too many requests wait already; try again soon");
    tickets_.push_back(*ticket);
  } catch (const Error& error) {
    give_up();
    throw Problem(400, error.what(), "input");
  } catch (const Problem&) {
    give_up();
    throw;
  }
}

void Embedding::give_up() {
  is_gone_ = true;
  for (const serving::Ticket ticket : tickets_) model_->engine->cancel(ticket);
}

void Embedding::cancel() {
  const std::lock_guard lock(mutex_);
  give_up();
}

void Embedding::on_end(const serving::AnswerEnd& end) {
  const std::lock_guard lock(mutex_);
  if (end.outcome == serving::Outcome::kFailed) problem_ = end.problem;
  if (end.outcome == serving::Outcome::kCancelled) problem_ = "the server is going down";
  --left_;
  if (is_gone_) return;
  if (next_ < request_.texts.size() && problem_.empty()) {
    try {
      submit_next();
    } catch (const Problem& problem) {
      exchange_->respond(response_of(problem));
    }
    return;
  }
  if (left_ > 0 && problem_.empty()) return;
  if (!problem_.empty()) give_up();
  if (!problem_.empty()) return exchange_->respond(response_of(Problem(503, problem_)));
  for (std::vector<float>& vector : vectors_) normalise(vector);
  exchange_->respond({.body = text_of(result())});
}

Json Embedding::result() const {
  std::size_t tokens = 0;
  Json data = Json::array();
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    tokens += request_.texts[i].size();
    Json one = {{"object", "embedding"}, {"index", i}};
    one["embedding"] = request_.as_base64 ? Json(base64_of(vectors_[i])) : Json(vectors_[i]);
    data.push_back(std::move(one));
  }
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", model_->name},
          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
}

}  // namespace halfbyte::server
