// halfbyte serve CKPT...: an HTTP server that OpenAI's clients speak to.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include <halfbyte/server.h>

#include "loader/thread_count.h"
#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/spelling.h"
#include "tools/cli/weighted_adapter.h"
#include "tools/model/launched_group.h"
#include "tools/model/model_options.h"
#include "tools/model/model_verbs.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kKeyVariable = "HALFBYTE_API_KEY";

struct Words {
  ModelWords model;
  std::vector<std::string> adapters;
  ServerOptions server;
  ServeOptions serve;
  std::int64_t port = 8080, timeout = 60, drain = 30;
  std::string key_file, kept_bytes;
  std::vector<std::string> checkpoints, names;  // parsed: those behind the first, and names that are said; then all
};

void declare(OptionParser& parser, Words& words) {
  declare_model(parser, words.model);
  declare_adapters(parser, words.adapters);
  parser.add_checkpoints("MORE", words.checkpoints, "further models, which requests name");
  parser.add_option("--host", words.server.host, "address to listen on").type_name("ADDRESS").show_default();
  parser.add_option("--port", words.port, "0: any that is free").check(whole_number(0, 65535)).show_default();
  parser
      .add_option("--api-key-file", words.key_file,
                  "keys, one a line, of which clients must send one; HALFBYTE_API_KEY in the environment is one too")
      .type_name("FILE");
  parser.add_flag("--insecure", words.server.insecure, "listen beyond this machine without keys");
  parser
      .add_option("--name", words.names,
                  "what clients call the model (CKPT's folder); once for each checkpoint, or not")
      .type_name("NAME")
      .repeatable();
  parser.add_option("--chat-template", words.serve.chat_template, "a family's, instead of the checkpoint's own")
      .type_name("NAME");
  parser
      .add_option("--ctx-size", words.serve.context,
                  "tokens of a prompt with its answer; 0: the model's context, or what there is memory for")
      .check(whole_number(0, 1LL << 40))
      .show_default();
  parser.add_option("--parallel", words.serve.parallel, "answers made at once")
      .check(whole_number(1, 1024))
      .show_default();
  parser
      .add_option("--kv-memory", words.kept_bytes,
                  "memory of keys and values, of all sequences together (what --parallel contexts take, a quarter of "
                  "this machine's at most)")
      .type_name("SIZE")
      .check(byte_size());
  parser.add_option("--queue", words.serve.waiting, "requests that may wait; more are told to come again")
      .check(whole_number(0, 1 << 20))
      .show_default();
  parser.add_option("--timeout", words.timeout, "seconds that a client may take to send a request, or to take a piece")
      .check(whole_number(1, 86400))
      .show_default();
  parser.add_option("--drain", words.drain, "seconds that answers may go on once the server is asked to end")
      .check(whole_number(0, 86400))
      .show_default();
  parser.add_flag("--log-requests", words.server.logs_texts, "log the texts of requests too");
}

// One a line; empty lines and those that begin with # are none.
std::vector<std::string> keys_in(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::kNotFound, "cannot read " + path);
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line.front() != '#') keys.push_back(line);
  }
  if (keys.empty()) throw Error(ErrorCode::kInvalidArgument, path + " has no key in it");
  return keys;
}

void complete(Words& words, const CommonOptions& common) {
  words.server.port = static_cast<std::uint16_t>(words.port);
  words.server.timeout = std::chrono::seconds(words.timeout);
  if (!words.key_file.empty()) words.server.keys = keys_in(words.key_file);
  if (const char* key = std::getenv(kKeyVariable); key && *key) words.server.keys.emplace_back(key);
  if (!words.kept_bytes.empty()) words.serve.kept_bytes = static_cast<std::int64_t>(parse_bytes(words.kept_bytes));
  if (!common.is_quiet) words.server.log = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  words.serve.loading = load_options(words.model);
  words.serve.adapters = weighted_adapters<convert::WeightedAdapter>(words.adapters);
  if (!words.adapters.empty() && !words.checkpoints.empty())
    throw UsageError("--adapter goes with one model; serve the others by themselves");
  std::vector<std::string>& all = words.checkpoints;
  all.insert(all.begin(), words.model.checkpoint);
  if (!words.names.empty() && words.names.size() != all.size())
    throw Error(ErrorCode::kInvalidArgument,
                "--name: there are " + counted(static_cast<std::int64_t>(all.size()), "checkpoint") + ", and " +
                    counted(static_cast<std::int64_t>(words.names.size()), "name"));
  if (words.names.empty()) std::ranges::transform(all, std::back_inserter(words.names), &served_name);
  std::vector<std::string> sorted = words.names;
  std::ranges::sort(sorted);
  if (const auto same = std::ranges::adjacent_find(sorted); same != sorted.end())
    throw Error(ErrorCode::kInvalidArgument, "two models would be called " + printable(*same) + "; give each a --name");
}

void announce(const Server& server, const Serving& serving, const Words& words, bool is_json) {
  if (is_json) {
    print_json_line({{"address", server.address()},
                     {"port", server.port()},
                     {"name", serving.name},
                     {"policy", serving.report.policy},
                     {"compute", serving.report.compute},
                     {"device", serving.report.device},
                     {"context", serving.context},
                     {"parallel", words.serve.parallel},
                     {"kv_bytes", serving.kept_bytes},
                     {"kv_bytes_of_sequence", serving.bytes_of_sequence},
                     {"has_chat", serving.has_chat},
                     {"needs_key", !words.server.keys.empty()}});
  } else {
    print_line("serving " + printable(serving.name) + " at " + server.address() + "/v1 (policy " +
               serving.report.policy + ", packed codes times " + serving.report.compute + ", " + serving.report.device +
               ")");
    print_line("up to " + std::to_string(words.serve.parallel) + " answers at once of up to " +
               counted(serving.context, "token") + ", which take " +
               human_bytes(static_cast<std::uint64_t>(serving.bytes_of_sequence)) + " each; " +
               human_bytes(static_cast<std::uint64_t>(serving.kept_bytes)) + " for all");
  }
  std::fflush(stdout);
  if (!serving.has_chat) log_warning("the checkpoint has no chat template: only completions are served");
  if (words.server.keys.empty() && words.server.insecure) log_warning("whoever reaches this address may use the model");
}

// The network's thread, which ends with it.
class Network {
 public:
  explicit Network(Server& server) : server_(server), thread_([&server] { server.run(); }) {}
  ~Network() {
    server_.stop();
    thread_.join();
  }
  void wait() {
    thread_.join();
    thread_ = std::thread([] {});
  }

 private:
  Server& server_;
  std::thread thread_;
};

void check_for_ranks(const Words& words) {
  if (!words.adapters.empty())
    refuse_for_ranks("--adapter", "they have parts of the products; merge it first (`halfbyte merge`)");
  if (!words.checkpoints.empty()) refuse_for_ranks("a second model", "they serve one; start others by themselves");
}

// Why ranks do not follow this one any more.
class Loss {
 public:
  void note(const std::string& problem) {
    const std::lock_guard lock(mutex_);
    problem_ = problem;
  }
  void check() const {
    const std::lock_guard lock(mutex_);
    if (!problem_.empty()) throw Error(ErrorCode::kIo, problem_);
  }

 private:
  mutable std::mutex mutex_;
  std::string problem_;
};

ExitStatus run(Words& words, const CommonOptions& common) {
  check_for_ranks(words);
  if (is_later_rank()) return follow_first_rank(words.model, common);
  complete(words, common);
  if (words.model.threads > 0) set_thread_count(words.model.threads);
  InterruptWatch interrupt;  // before all threads
  interrupt.end_at_once();
  Loss loss;
  Server server(words.server);
  Network network(server);
  words.serve.loading.group = launched_group();
  words.serve.loading.pipeline = launched_pipeline();
  words.serve.loading.reduce_dtype = launched_reduce_dtype();
  words.serve.lead = launched_lead();
  words.serve.lead.on_lost = [&](const std::string& problem) { loss.note(problem); };
  for (std::size_t i = 0; i < words.checkpoints.size(); ++i) {
    words.serve.name = words.names[i];
    const Serving serving = server.serve(words.checkpoints[i], words.serve);
    log_report(serving.report);
    if (i + 1 == words.checkpoints.size()) interrupt.request_only();
    announce(server, serving, words, common.is_json);
  }
  const std::stop_callback drain(interrupt.token(), [&] {
    if (!common.is_quiet) std::fprintf(stderr, "ending; once more ends at once\n");
    server.drain(std::chrono::seconds(words.drain));
  });
  network.wait();
  loss.check();
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_serve(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli
