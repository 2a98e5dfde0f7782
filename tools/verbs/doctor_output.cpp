// What `doctor` prints, as text and as JSON.
#include <cstdio>

#include <nlohmann/json.hpp>

#include "loader/files/platform.h"
#include "quant/threads.h"
#include "tools/cli/errors.h"
#include "tools/cli/fields.h"
#include "tools/cli/format.h"
#include "tools/cli/output.h"
#include "tools/cli/verb.h"
#include "tools/cli/wrap.h"
#include "tools/verbs/doctor.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

std::string compiler() {
#if defined(__clang__)
  return "Clang " __clang_version__;
#else
  return "GCC " __VERSION__;
#endif
}

std::string joined(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

std::string error_text(double rel_rmse) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0e", rel_rmse);
  return text;
}

std::string memory(const Machine& machine) {
  return human_bytes(files::memory_bytes()) + ", " + human_bytes(machine.available_bytes) + " free";
}

std::string onednn_text(const ordered_json& onednn) {
  if (!onednn["available"]) return "none: " + onednn["why_not"].get<std::string>();
  const bool has_float32 = onednn["brgemm_float32"], has_bfloat16 = onednn["brgemm_bfloat16"];
  const std::string brgemm = has_float32 && has_bfloat16 ? "brgemm in float32 and bfloat16"
                             : has_float32               ? "brgemm in float32"
                                                         : "no brgemm on this CPU";
  return onednn["version"].get<std::string>() + ", " + brgemm + " (" + onednn["path"].get<std::string>() + ")";
}

void print_torch(const ordered_json& torch) {
  if (torch.is_null()) return print_field("LibTorch", "none");
  print_field("LibTorch", torch["found"].get<std::string>() + ", built against " +
                              torch["built_against"].get<std::string>() + ", " +
                              torch["cpu_capability"].get<std::string>() + ", its oneDNN " +
                              torch["onednn"].get<std::string>());
  print_field("", torch["library"].get<std::string>());
  for (const ordered_json& device : torch["devices"]) {
    const std::string reason = device["reason"];
    print_field("device", device["name"].get<std::string>() + ": " + (device["present"] ? "present" : "no") +
                              (reason.empty() ? "" : ", " + reason));
  }
}

std::string gpu_text(const Gpu& gpu) {
  const std::string place = gpu.id.empty() ? "" : " " + gpu.id + " at " + gpu.address;
  const std::string driver = gpu.driver.empty() ? "no driver" : "driver " + gpu.driver;
  return name(gpu.vendor) + place + ", " + driver + (gpu.driver_version.empty() ? "" : " " + gpu.driver_version);
}

ordered_json json_of(const std::vector<Gpu>& gpus) {
  ordered_json out = ordered_json::array();
  for (const Gpu& gpu : gpus) {
    out.push_back({{"vendor", name(gpu.vendor)},
                   {"id", gpu.id},
                   {"address", gpu.address},
                   {"driver", gpu.driver},
                   {"driver_version", gpu.driver_version}});
  }
  return out;
}

void print_head(const Diagnosis& diagnosis) {
  const Machine& machine = diagnosis.machine;
  print_field("halfbyte", std::string(version()) + ", " + compiler());
  print_field("system", machine.system);
  print_field("CPU",
              machine.cpu + ", " + counted(machine.cores, "core") + ", " + counted(quant::max_threads(), "thread"));
  print_field("", joined(machine.features, " "));
  print_field("memory", memory(machine));
  print_field("kernels", (diagnosis.isa.empty() ? "none" : diagnosis.isa) + " (this CPU runs " +
                             joined(diagnosis.isas, ", ") + ")");
  print_field("oneDNN", onednn_text(diagnosis.onednn));
  print_torch(diagnosis.torch);
  if (diagnosis.gpus.empty()) print_field("GPUs", "none");
  for (const Gpu& gpu : diagnosis.gpus) print_field("GPU", gpu_text(gpu));
}

void print_trials(const std::vector<Trial>& trials) {
  Table table({{"operation"}, {"dtype"}, {"runs"}, {"error", Align::kRight}, {"how that is known"}});
  for (const Trial& trial : trials) {
    const bool has_run = trial.verdict != Verdict::kRefused;
    table.add(
        {trial.operation, trial.dtype, name(trial.verdict), has_run ? error_text(trial.rel_rmse) : "", trial.reason});
  }
  print_line("");
  table.print("  ");
}

}  // namespace

void print_diagnosis(const Diagnosis& diagnosis) {
  print_head(diagnosis);
  print_trials(diagnosis.trials);
  print_line("");
  for (const std::string& note : diagnosis.notes) print_text("note: " + note);
  for (const BrokenThing& broken : diagnosis.broken) {
    print_text("broken: " + broken.problem);
    print_line(with_indent("   fix: ", printable(broken.fix), 8, printed_columns()));
  }
  print_line(diagnosis.broken.empty()
                 ? "all is well"
                 : counted(static_cast<std::int64_t>(diagnosis.broken.size()), "thing") + " broken");
}

void print_diagnosis_json(const Diagnosis& diagnosis) {
  const Machine& machine = diagnosis.machine;
  ordered_json trials = ordered_json::array();
  for (const Trial& trial : diagnosis.trials) trials.push_back(to_json(trial));
  ordered_json broken = ordered_json::array();
  for (const BrokenThing& thing : diagnosis.broken) broken.push_back({{"problem", thing.problem}, {"fix", thing.fix}});
  print_json({{"well", diagnosis.broken.empty()},
              {"halfbyte", {{"version", version()}, {"compiler", compiler()}}},
              {"machine",
               {{"system", machine.system},
                {"cpu", machine.cpu},
                {"features", machine.features},
                {"cores", machine.cores},
                {"threads", quant::max_threads()},
                {"memory_bytes", files::memory_bytes()},
                {"available_bytes", machine.available_bytes}}},
              {"kernels", {{"isa", diagnosis.isa}, {"available", diagnosis.isas}}},
              {"onednn", diagnosis.onednn},
              {"torch", diagnosis.torch},
              {"gpus", json_of(diagnosis.gpus)},
              {"trials", std::move(trials)},
              {"notes", diagnosis.notes},
              {"broken", std::move(broken)}});
}

}  // namespace halfbyte::cli
