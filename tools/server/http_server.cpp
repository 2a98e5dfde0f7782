// What the server answers to each method and path.
#include "tools/server/http_server.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "models/chat/encode.h"
#include "models/json/printable.h"
#include "tools/server/api/answer_filter.h"
#include "tools/server/api/answering.h"
#include "tools/server/api/chat_request.h"
#include "tools/server/api/completion_request.h"
#include "tools/server/api/embedding.h"
#include "tools/server/api/keys.h"
#include "tools/server/api/metrics.h"
#include "tools/server/api/tokens.h"
#include "tools/server/http/listener.h"
#include "tools/server/page/page.h"
#include "tools/server/served_models.h"
#include "tools/server/worker.h"

namespace halfbyte::server {
namespace {

ListenerOptions listening(const ServerOptions& options) {
  ListenerOptions out;
  out.host = options.host;
  out.port = options.port;
  out.request_timeout = out.write_timeout = options.timeout;
  out.idle_timeout = options.idle;
  out.most_connections = options.most_connections;
  out.most_body_bytes = options.most_body_bytes;
  return out;
}

ServerOptions checked(ServerOptions options) {
  const bool is_open = options.keys.empty() && !options.insecure;
  if (is_open && !Listener::is_loopback(options.host)) {
    throw Error(ErrorCode::kInvalidArgument, "whoever reaches " + options.host +
                                                 " could use the model; give keys with " + Option::kKeys + ", or say " +
                                                 Option::kInsecure);
  }
  for (const std::string& key : options.keys) {
    if (key.empty()) throw Error(ErrorCode::kInvalidArgument, "a key is empty");
  }
  if (options.timeout.count() < 1) throw Error(ErrorCode::kInvalidArgument, "the timeout is less than a second");
  return options;
}

}  // namespace

class HttpServer::State : public std::enable_shared_from_this<State> {
 public:
  explicit State(ServerOptions options)
      : options_(checked(std::move(options))),
        listener_(listening(options_),
                  {.handle = [this](std::shared_ptr<Exchange> exchange) { handle(std::move(exchange)); },
                   .check = [this](const HttpRequest& head) { return refused_head(head); },
                   .refuse = [this](int status, const std::string& problem) { return refused(status, problem); }}) {}
  ~State() {
    worker_.stop();
    const auto jobs = [&] {
      const std::lock_guard lock(mutex_);
      return jobs_;
    }();
    for (const auto& weak : jobs) {
      if (const auto job = weak.lock()) job->cancel();
    }
    alive_.wait_for_none();
  }

  void serve(ServedModel model) { models_.add(std::move(model)); }

  Listener& listener() { return listener_; }
  const ServerOptions& options() const { return options_; }
  void drain(std::chrono::milliseconds most) {
    is_draining_ = true;
    listener_.drain(most);
  }

 private:
  using Call = void (State::*)(const std::shared_ptr<Exchange>& exchange);
  enum class Where { kHere, kWorker };
  struct Route {
    std::string_view method, path;
    Where where;
    bool needs_key;
    Call call;
  };
  static const Route kRoutes[];

  const ServedModels& models() const {
    if (is_draining_) throw Problem(503, "the server is going down");
    return models_;
  }
  // The one that the body names.
  std::shared_ptr<const ServedModel> model_of(const Body& body) const {
    const auto name = body.string("model");
    return name ? models().named(*name) : models().first();
  }

  HttpResponse refused(int status, const std::string& problem) {
    metrics_.answered("none", status);
    return response_of(Problem(status, problem));
  }

  void handle(std::shared_ptr<Exchange> exchange) {
    const HttpRequest& request = exchange->request();
    guarded(exchange, [&] {
      const Route& route = checked_route(request);
      if (options_.log && options_.logs_texts && !request.body.empty()) options_.log(printable(request.body));
      if (route.where == Where::kHere) return (this->*route.call)(exchange);
      const auto work = [this, exchange, call = route.call] {
        if (!exchange->is_gone()) guarded(exchange, [&] { (this->*call)(exchange); });
      };
      if (!worker_.add(request.body.size(), work)) throw Problem(429, "too many requests wait already; try again soon");
    });
  }

  // Errors: Problem, where nothing is to be done for it, whatever its body is.
  const Route& checked_route(const HttpRequest& request) const {
    const Route& route = route_of(request);
    if (route.needs_key && !is_allowed(request.authorization, options_.keys))
      throw Problem(401, "a valid key is missing: send the header Authorization: Bearer KEY", "", "invalid_api_key");
    check_host(request);
    check_type(request);
    return route;
  }

  std::optional<HttpResponse> refused_head(const HttpRequest& head) {
    try {
      checked_route(head);
      return std::nullopt;
    } catch (const Problem& problem) {
      note(head, problem.status, printable(problem.message));
      return response_of(problem);
    }
  }

  // What fails becomes a response.
  template <class Work>
  void guarded(const std::shared_ptr<Exchange>& exchange, const Work& work) {
    try {
      work();
    } catch (const Problem& problem) {
      fail(exchange, problem);
    } catch (const Error& error) {
      const bool is_clients = error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kUnsupported;
      fail(exchange, is_clients ? Problem(400, error.what()) : Problem(500, "the server failed at this request"));
    } catch (const std::bad_alloc&) {
      fail(exchange, Problem(503, "there is no memory for this request"));
    } catch (const std::exception&) {
      fail(exchange, Problem(500, "the server failed at this request"));
    }
  }

  void fail(const std::shared_ptr<Exchange>& exchange, const Problem& problem) {
    note(exchange->request(), problem.status, printable(problem.message));
    exchange->respond(response_of(problem));
  }

  void note(const HttpRequest& request, int status, const std::string& what) {
    metrics_.answered(known_path(request.path), status);
    if (!options_.log) return;
    std::string line = request.peer + " " + printable(request.method) + " " + printable(request.path.substr(0, 100)) +
                       " " + std::to_string(status);
    if (!what.empty()) line += ": " + what;
    options_.log(line);
  }

  static std::string_view known_path(std::string_view path) {
    const auto known = std::ranges::find_if(kRoutesSpan(), [&](const Route& route) { return is_of(path, route); });
    return known == kRoutesSpan().end() ? "other" : known->path;
  }

  static std::span<const Route> kRoutesSpan();

  // A route that ends in '/' has all paths that something follows there; of "/" nothing does.
  static bool is_of(std::string_view path, const Route& route) {
    const bool has_more = route.path.size() > 1 && route.path.ends_with('/');
    return has_more ? path.size() > route.path.size() && path.starts_with(route.path) : path == route.path;
  }

  static const Route& route_of(const HttpRequest& request) {
    std::string allowed;
    for (const Route& route : kRoutesSpan()) {
      if (!is_of(request.path, route)) continue;
      if (route.method == request.method || (route.method == "GET" && request.method == "HEAD")) return route;
      allowed = route.method;
    }
    if (!allowed.empty()) throw Problem(405, "this path takes " + allowed + ", not " + printable(request.method));
    throw Problem(404, "there is nothing at " + printable(request.path.substr(0, 100)));
  }

  // A page of another site that made a name of its own mean this machine must not speak to a server without keys.
  void check_host(const HttpRequest& request) const {
    if (!options_.keys.empty() || options_.insecure || request.host.empty()) return;
    if (!is_this_machine(request.host, options_.host)) throw Problem(403, "the Host header names another machine");
  }

  static void check_type(const HttpRequest& request) {
    if (request.method != "POST") return;
    const std::string_view type = request.content_type;
    if (type.substr(0, type.find(';')) == "application/json") return;
    throw Problem(415, "the body must be sent as Content-Type: application/json");
  }

  void respond(const std::shared_ptr<Exchange>& exchange, const Json& json, int status = 200) {
    note(exchange->request(), status, "");
    exchange->respond({.status = status, .body = text_of(json)});
  }

  // Endpoints.
  void page(const std::shared_ptr<Exchange>& exchange) {
    note(exchange->request(), 200, "");
    exchange->respond(chat_page());
  }
  void health(const std::shared_ptr<Exchange>& exchange) {
    const char* const status = is_draining_ ? "draining" : models_.is_empty() ? "starting" : "ready";
    const int code = std::string_view(status) == "ready" ? 200 : 503;
    exchange->respond({.status = code, .body = text_of(Json{{"status", status}})});
  }

  void metrics(const std::shared_ptr<Exchange>& exchange) {
    exchange->respond({.content_type = "text/plain; version=0.0.4", .body = metrics_.text(models().state())});
  }

  static Json model_json(const ServedModel& served) {
    return {{"id", served.name},
            {"object", "model"},
            {"created", 0},
            {"owned_by", "halfbyte"},
            {"max_model_len", served.context}};
  }

  void list(const std::shared_ptr<Exchange>& exchange) {
    Json data = Json::array();
    for (const auto& served : models().all()) data.push_back(model_json(*served));
    respond(exchange, {{"object", "list"}, {"data", std::move(data)}});
  }

  // What the path says behind `route`.
  std::shared_ptr<const ServedModel> named_behind(std::string_view route, const std::shared_ptr<Exchange>& exchange) {
    return models().named(exchange->request().path.substr(route.size()));
  }
  void one_model(const std::shared_ptr<Exchange>& exchange) {
    respond(exchange, model_json(*named_behind("/v1/models/", exchange)));
  }
  void report(const std::shared_ptr<Exchange>& exchange) { respond(exchange, *models().first()->report); }
  void one_report(const std::shared_ptr<Exchange>& exchange) {
    respond(exchange, *named_behind("/v1/halfbyte/report/", exchange)->report);
  }

  void tokenize(const std::shared_ptr<Exchange>& exchange) {
    const Body body(exchange->take_body());
    respond(exchange, tokens_of_text(body, *model_of(body)));
  }
  void detokenize(const std::shared_ptr<Exchange>& exchange) {
    const Body body(exchange->take_body());
    respond(exchange, text_of_tokens(body, *model_of(body)));
  }

  void chat(const std::shared_ptr<Exchange>& exchange) {
    const Body body(exchange->take_body());
    const auto served = model_of(body);
    const ChatRequest request = chat_request_of(body, *served);
    AnswerPlan plan{.is_chat = true, .fields = request.fields, .continues_answers = request.has_answers};
    std::vector<models::Segment> segments;
    try {
      segments = served->chat->render(request.input, *served->tokenizer);
    } catch (const Error& error) {
      throw Problem(400, error.what(), "messages");
    }
    ChoiceOptions reading{.is_chat = true,
                          .begins_with_line = served->chat->begins_with_line(),
                          .separates_thinking = request.separates_thinking,
                          .tools = request.tools,
                          .stops = request.fields.stops};
    reading.begins_thinking = begins_thinking(segments);
    // What the prompt has begun to think is ended before the answer; else it is JSON from the first token on.
    const bool thinks = reading.begins_thinking && reading.separates_thinking;
    const auto close = thinks ? thinking_end(*served->tokenizer) : std::nullopt;
    if (request.schema && !close) reading.separates_thinking = false;
    plan.reading = {reading};
    if (request.schema) plan.filter = answer_filter(*served, trie(*served), request.schema, close);
    plan.prompts = {models::encode_segments(std::move(segments), *served->tokenizer)};
    answer(served, exchange, std::move(plan));
  }

  // Made for the first who needs it. In the worker's thread.
  std::shared_ptr<const serving::TokenTrie> trie(const ServedModel& served) {
    auto& trie = tries_[&served];
    if (!trie) trie = std::make_shared<const serving::TokenTrie>(*served.tokenizer);
    return trie;
  }

  void complete(const std::shared_ptr<Exchange>& exchange) {
    const Body body(exchange->take_body());
    const auto served = model_of(body);
    CompletionRequest request = completion_request_of(body, *served);
    AnswerPlan plan{.fields = request.fields, .prompts = std::move(request.prompts)};
    for (const TokenIds& prompt : plan.prompts) {
      plan.reading.push_back({.context = prompt, .stops = request.fields.stops});
      if (request.echo) plan.echoes.push_back(served->tokenizer->decode(prompt));
    }
    answer(served, exchange, std::move(plan));
  }

  void answer(const std::shared_ptr<const ServedModel>& served, const std::shared_ptr<Exchange>& exchange,
              AnswerPlan plan) {
    plan.client = client_of(exchange->request());
    AnswerWatch watch;
    watch.ended = [this](const serving::AnswerEnd& end) { metrics_.ended(end); };
    watch.done = [this, request = head_of(exchange->request())](const std::string& summary) {
      note(request, 200, summary);
    };
    const auto one = std::make_shared<Answering>(served, exchange, std::move(plan), std::move(watch));
    add(one);
    one->start();
  }

  void add(const std::shared_ptr<Job>& job) {
    job->set_alive(alive_.one());
    const std::lock_guard lock(mutex_);
    std::erase_if(jobs_, [](const auto& weak) { return weak.expired(); });
    jobs_.push_back(job);
  }

  void embed(const std::shared_ptr<Exchange>& exchange) {
    const Body body(exchange->take_body());
    const auto served = model_of(body);
    EmbeddingRequest request = embedding_request_of(body, *served);
    request.client = client_of(exchange->request());
    const auto one = std::make_shared<Embedding>(served, exchange, std::move(request));
    add(one);
    one->start();
    note(exchange->request(), 200, "");
  }

  // Who shares with whom: those of one key, or of one address.
  static std::string client_of(const HttpRequest& request) {
    return request.authorization.empty() ? request.peer : request.authorization;
  }

  static HttpRequest head_of(const HttpRequest& request) {
    return {.method = request.method, .path = request.path, .peer = request.peer};
  }

  const ServerOptions options_;
  mutable std::mutex mutex_;
  ServedModels models_;
  std::vector<std::weak_ptr<Job>> jobs_;
  std::map<const ServedModel*, std::shared_ptr<const serving::TokenTrie>> tries_;
  Metrics metrics_;
  Alive alive_;
  std::atomic<bool> is_draining_ = false;
  Listener listener_;
  Worker worker_;  // last: it uses all of the above
};

const HttpServer::State::Route HttpServer::State::kRoutes[] = {
    {"GET", "/", Where::kHere, false, &State::page},
    {"GET", "/health", Where::kHere, false, &State::health},
    {"GET", "/metrics", Where::kHere, true, &State::metrics},
    {"GET", "/v1/models", Where::kHere, true, &State::list},
    {"GET", "/v1/models/", Where::kHere, true, &State::one_model},
    {"GET", "/v1/halfbyte/report", Where::kHere, true, &State::report},
    {"GET", "/v1/halfbyte/report/", Where::kHere, true, &State::one_report},
    {"POST", "/v1/chat/completions", Where::kWorker, true, &State::chat},
    {"POST", "/v1/completions", Where::kWorker, true, &State::complete},
    {"POST", "/v1/embeddings", Where::kWorker, true, &State::embed},
    {"POST", "/tokenize", Where::kWorker, true, &State::tokenize},
    {"POST", "/detokenize", Where::kWorker, true, &State::detokenize},
};

std::span<const HttpServer::State::Route> HttpServer::State::kRoutesSpan() { return kRoutes; }

HttpServer::HttpServer(ServerOptions options) : state_(std::make_shared<State>(std::move(options))) {}

HttpServer::~HttpServer() = default;

void HttpServer::serve(ServedModel model) { state_->serve(std::move(model)); }

std::uint16_t HttpServer::port() const noexcept { return state_->listener().port(); }

std::string HttpServer::address() const {
  const std::string& host = state_->options().host;
  return "http://" + (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port());
}

void HttpServer::run() { state_->listener().run(); }

void HttpServer::drain(std::chrono::milliseconds most) { state_->drain(most); }

void HttpServer::stop() { state_->listener().stop(); }

}  // namespace halfbyte::server
