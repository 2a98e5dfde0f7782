// POST /v1/embeddings: texts as vectors of the model's hidden states.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tools/server/http_server.h"

#include "tools/server/api/body.h"
#include "tools/server/api/job.h"
#include "tools/server/http/exchange.h"

namespace halfbyte::server {

struct EmbeddingRequest {
  std::vector<TokenIds> texts;
  serving::Pooling pooling = serving::Pooling::kMean;
  bool as_base64 = false;
  std::string client = {};
};

// Errors: Problem 400, 404.
EmbeddingRequest embedding_request_of(const Body& body, const ServedModel& model);

// Asks the engine and answers the exchange once all vectors are there; each has length 1. Errors: Problem 400, 429.
class Embedding final : public Job, public std::enable_shared_from_this<Embedding> {
 public:
  Embedding(std::shared_ptr<const ServedModel> model, std::shared_ptr<Exchange> exchange, EmbeddingRequest request);
  void start();
  void cancel() override;

 private:
  void submit_next();
  void give_up();
  void on_end(const serving::AnswerEnd& end);
  Json result() const;

  const std::shared_ptr<const ServedModel> model_;
  const std::shared_ptr<Exchange> exchange_;
  const EmbeddingRequest request_;
  std::mutex mutex_;
  std::vector<std::vector<float>> vectors_;
  std::vector<serving::Ticket> tickets_;
  std::size_t next_ = 0;  // text to ask for
  std::size_t left_;
  std::string problem_;
  bool is_gone_ = false;
};

}  // namespace halfbyte::server
