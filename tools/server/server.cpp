// A checkpoint behind the HTTP server.
#include <halfbyte/server.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <mutex>

#include <nlohmann/json.hpp>

#include <halfbyte/adapter.h>
#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

#include "loader/files/platform.h"
#include "loader/files/tokenizer_directory.h"
#include "models/architectures/model_config.h"
#include "models/serving/scheduler.h"
#include "models/sessions/session.h"
#include "tools/server/api/load_report_json.h"
#include "tools/server/http_server.h"

namespace halfbyte {
namespace {

// Where nobody says how long a context is, it is this long at least.
constexpr std::int64_t kLeastContext = 64;
// For answers that are cut because ranks are gone to be told so: less than who started the ranks gives this one.
constexpr std::chrono::seconds kLastWords{3};

std::filesystem::path directory_of(const std::filesystem::path& checkpoint) {
  return std::filesystem::is_directory(checkpoint) ? checkpoint : checkpoint.parent_path();
}

serving::SchedulerOptions scheduling(const Model& model, const ServeOptions& options) {
  serving::SchedulerOptions out{.parallel = options.parallel, .waiting = options.waiting, .context = options.context};
  const models::Session session = model.module().make_session();
  const std::int64_t most = model.config().max_position_embeddings;
  const std::int64_t context = options.context > 0 ? std::min(options.context, most) : most;
  const std::int64_t ranks = options.loading.group ? options.loading.group->size() : 1;  // perhaps all of this machine
  const std::int64_t quarter = static_cast<std::int64_t>(files::memory_bytes() / 4) / ranks;
  const std::int64_t wanted = session.bytes_for(context) * std::max<std::int64_t>(options.parallel, 1);
  out.kept_bytes =
      options.kept_bytes > 0 ? options.kept_bytes : std::min(wanted, std::max<std::int64_t>(quarter, 64 << 20));
  std::int64_t fits = context;  // what there is memory for, where nobody asks for more
  while (options.context == 0 && fits > kLeastContext && session.bytes_for(fits) > out.kept_bytes) fits = fits * 7 / 8;
  if (session.bytes_for(fits) > out.kept_bytes) {
    throw Error(ErrorCode::kInvalidArgument, "the keys and values of a context of " + std::to_string(fits) +
                                                 " tokens take " + std::to_string(session.bytes_for(fits)) +
                                                 " bytes; there are " + std::to_string(out.kept_bytes) + " for them");
  }
  if (options.context == 0) out.context = fits;
  return out;
}

}  // namespace

std::string served_name(const std::filesystem::path& checkpoint) {
  const auto whole = std::filesystem::weakly_canonical(checkpoint);
  return (whole.has_filename() ? whole.filename() : whole.parent_path().filename()).string();
}

class Server::State {
 public:
  explicit State(ServerOptions options) : http_(std::make_unique<server::HttpServer>(std::move(options))) {}
  // What is being answered ends before what answers it.
  ~State() {
    {
      const std::lock_guard lock(ending_);
      is_ending_ = true;
    }
    http_.reset();
  }

  server::HttpServer& http() { return *http_; }

  Serving serve(const std::filesystem::path& checkpoint, const ServeOptions& options) {
    if (!std::filesystem::exists(checkpoint))
      throw Error(ErrorCode::kNotFound, checkpoint.string() + " does not exist");
    check_ranks(options);
    server::ServedModel served;
    served.tokenizer = models::load_tokenizer(files::TokenizerDirectory(checkpoint.string()).path());
    if (!served.tokenizer)
      throw Error(ErrorCode::kNotFound, checkpoint.string() + " has no tokenizer, so no text can be served");
    models_.push_back(load_low_bit(checkpoint, options.loading));
    try {
      if (options.loading.group) leading_ = std::make_unique<Leading>(models_.back().module(), lead(options.lead));
      return serve(models_.back(), checkpoint, std::move(served), options);
    } catch (...) {
      if (options.loading.group) leading_.reset();
      models_.pop_back();
      throw;
    }
  }

 private:
  void check_ranks(const ServeOptions& options) const {
    if (leading_ || (options.loading.group && !models_.empty()))
      throw Error(ErrorCode::kUnsupported, "a model that ranks run together is the only one of its server");
    if (options.loading.group && !options.adapters.empty())
      throw Error(ErrorCode::kUnsupported, "ranks have parts of the products, and no adapters beside them");
  }

  // What is being answered is told so before the server ends.
  LeadOptions lead(const LeadOptions& options) {
    LeadOptions out = options;
    out.on_lost = [this, told = options.on_lost](const std::string& problem) {
      if (told) told(problem);
      const std::lock_guard lock(ending_);
      if (!is_ending_) http_->drain(kLastWords);
    };
    return out;
  }

  Serving serve(const Model& model, const std::filesystem::path& checkpoint, server::ServedModel served,
                const ServeOptions& options) {
    serving::SchedulerOptions how = scheduling(model, options);
    if (!options.adapters.empty())
      how.beside = [adapters = convert::Adapters(model, options.adapters)] { return adapters.enter(); };
    const auto scheduler = std::make_shared<serving::Scheduler>(model.module(), how);
    served.name = options.name.empty() ? served_name(checkpoint) : options.name;
    served.engine = scheduler;
    served.context = scheduler->context();
    served.stop_tokens = model.config().eos_token_ids;
    const TokenIds more = models::generation_stop_tokens(directory_of(checkpoint));
    served.stop_tokens.insert(served.stop_tokens.end(), more.begin(), more.end());
    try {
      served.chat =
          models::load_chat_template(directory_of(checkpoint), *served.tokenizer, {.name = options.chat_template});
      served.chat_stop_tokens = served.chat->stop_tokens(*served.tokenizer);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported || !options.chat_template.empty()) throw;
    }
    served.report = server::json_of(model.report());
    (*served.report)["checkpoint"] = *server::manifest_summary(directory_of(checkpoint));
    Serving out{model.report(),
                served.name,
                scheduler->context(),
                scheduler->kept_bytes(),
                scheduler->bytes_of_sequence(),
                served.chat.has_value()};
    http_->serve(std::move(served));
    return out;
  }

  std::list<Model> models_;
  std::mutex ending_;
  bool is_ending_ = false;
  std::unique_ptr<Leading> leading_;  // null: no ranks; its end may call what uses the two above
  std::unique_ptr<server::HttpServer> http_;
};

Server::Server(ServerOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Server::~Server() = default;

Serving Server::serve(const std::filesystem::path& checkpoint, const ServeOptions& options) {
  return state_->serve(checkpoint, options);
}

std::uint16_t Server::port() const noexcept { return state_->http().port(); }
std::string Server::address() const { return state_->http().address(); }
void Server::run() { state_->http().run(); }
void Server::drain(std::chrono::milliseconds most) { state_->http().drain(most); }
void Server::stop() { state_->http().stop(); }

}  // namespace halfbyte
