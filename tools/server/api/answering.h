// The answers to one request, from the engine to the client.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tools/server/http_server.h"

#include "tools/server/api/answer_fields.h"
#include "tools/server/api/job.h"
#include "tools/server/api/shape.h"
#include "tools/server/http/exchange.h"

namespace halfbyte::server {

// What is asked of the engine, and how its answers are read.
struct AnswerPlan {
  bool is_chat = false;
  AnswerFields fields = {};
  std::vector<TokenIds> prompts = {};
  std::vector<ChoiceOptions> reading = {};  // one a prompt
  std::vector<std::string> echoes = {};     // of each prompt; or none
  bool continues_answers = false;
  // Makes what one answer's tokens must be; none: all may come.
  std::function<std::shared_ptr<serving::TokenFilter>()> filter = {};
  std::string client = {};
};

// Told of all that ends.
struct AnswerWatch {
  std::function<void(const serving::AnswerEnd& end)> ended;
  std::function<void(const std::string& summary)> done;  // at the end: tokens and times
};

class Answering final : public Job, public std::enable_shared_from_this<Answering> {
 public:
  Answering(std::shared_ptr<const ServedModel> model, std::shared_ptr<Exchange> exchange, AnswerPlan plan,
            AnswerWatch watch);

  // Asks the engine. Errors: Problem 400, 429.
  void start();
  void cancel() override;

 private:
  struct Growing {
    Growing(const models::Tokenizer& tokenizer, const ChoiceOptions& options) : choice(tokenizer, options) {}
    Choice choice;
    Delta all = {};
    bool was_sent = false;
    std::size_t calls_sent = 0;
    std::vector<serving::ChosenToken> tokens = {};  // with logprobs, that were not sent
    std::int64_t offset = 0;                        // characters sent
    bool has_ended = false;
    serving::AnswerEnd end = {};
  };

  serving::Request request_for(std::size_t index);
  void submit_all();
  void cancel_submitted();
  bool on_token(std::size_t index, const serving::ChosenToken& chosen);
  void on_end(std::size_t index, const serving::AnswerEnd& end);
  void end_choice(std::size_t index);
  void add(Growing& choice, Delta delta);
  void send(std::size_t index, Delta delta, const std::string& reason);
  Json take_logprobs(Growing& choice);
  void finish();
  Usage usage() const;
  std::string summary() const;

  const std::shared_ptr<const ServedModel> model_;
  const std::shared_ptr<Exchange> exchange_;
  const AnswerPlan plan_;
  const AnswerWatch watch_;
  const AnswerHead head_;
  std::mutex mutex_;  // the engine's thread waits while all is being submitted
  std::vector<Growing> choices_;
  std::vector<serving::Ticket> tickets_;
  std::size_t left_ = 0;
  bool is_gone_ = false;
};

}  // namespace halfbyte::server
