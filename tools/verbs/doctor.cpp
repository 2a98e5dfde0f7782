// halfbyte doctor: what this machine is, what of it halfbyte uses, and what is broken, with the fix.
#include "tools/verbs/doctor.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "loader/versions.h"
#include "quant/kernels/kernels.h"
#include "quant/kernels/onednn/onednn.h"
#include "tools/cli/spelling.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kIllegalInstruction = 128 + 4;  // SIGILL, as a shell reports it
constexpr int kNotLoaded = 127;               // the dynamic linker's: a library is missing

void look_at_kernels(Diagnosis& out) {
  std::size_t count = 0;
  const quant::kernels::Level* levels = quant::kernels::levels(&count);
  for (std::size_t i = 0; i < count; ++i) {
    if (levels[i].is_available()) out.isas.emplace_back(levels[i].name);
  }
  try {
    out.isa = quant::isa_name();
    out.trials = try_kernels();
  } catch (const Error& error) {
    out.broken.push_back({said(error), "unset HALFBYTE_ISA"});
  }
  if (out.isas.size() == 1) {
    out.notes.emplace_back("this CPU has no AVX2: products run on portable code, many times slower");
  } else if (!out.isa.empty() && out.isa != out.isas.front()) {
    out.notes.push_back("HALFBYTE_ISA asks for " + out.isa + "; without it " + out.isas.front() + " would be used");
  }
}

// Another minor version of LibTorch is broken, which the program that links it says.
void note_version(const LibraryVersion& library, Diagnosis& out) {
  if (const std::string note = version_note(library); !note.empty()) out.notes.push_back(note);
}

void look_at_onednn(Diagnosis& out) {
  using namespace quant;
  out.onednn = {{"available", onednn::available()},
                {"path", onednn::path()},
                {"version", onednn::version()},
                {"built_against", onednn::built_against()},
                {"brgemm_float32", onednn::available() && onednn::supports(Dtype::kFloat32)},
                {"brgemm_bfloat16", onednn::available() && onednn::supports(Dtype::kBfloat16)},
                {"why_not", onednn::why_not()}};
  if (!onednn::available()) {
    out.notes.push_back("no oneDNN, so prefill through dense weights runs on halfbyte's own slower kernels: " +
                        onednn::why_not());
  } else if (!onednn::supports(Dtype::kFloat32)) {
    out.notes.emplace_back(
        "oneDNN has no brgemm for this CPU, so prefill through dense weights runs on halfbyte's own slower kernels");
  }
  if (onednn::available()) note_version(onednn_version(), out);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

BrokenThing why_it_did_not_start(const std::filesystem::path& program, const Finished& finished) {
  const std::string said = first_line(finished.messages);
  if (finished.exit_status == kIllegalInstruction) {
    return {program.string() + " ended at an instruction that this CPU lacks",
            "build halfbyte and install LibTorch on this machine: tools/setup.sh"};
  }
  if (finished.exit_status == kNotLoaded) {
    return {program.string() + " does not start: " + said,
            "put LibTorch back where it was when halfbyte was built, or build again: tools/setup.sh"};
  }
  return {program.string() + " ended with status " + std::to_string(finished.exit_status) +
              (said.empty() ? "" : ": " + said),
          "build again: tools/setup.sh"};
}

// LibTorch is asked by the program that links it, so that `halfbyte` runs without, and survives what breaks there.
void look_at_torch(Diagnosis& out) {
  const std::filesystem::path program = model_program();
  std::error_code ignored;
  if (!std::filesystem::exists(program, ignored)) {
    out.notes.push_back("built without LibTorch (" + program.string() +
                        " is missing), so no model is run but what `generate` does in kernels alone: build with -DHALFBYTE_WITH_TORCH=ON");
    return;
  }
  const Finished finished = run_to_end(program, {"doctor", "--json"});
  ordered_json said = ordered_json::parse(finished.output, nullptr, false);
  if (finished.exit_status != 0 || !said.is_object() || !said.contains("trials")) {
    out.broken.push_back(why_it_did_not_start(program, finished));
    return;
  }
  for (const ordered_json& trial : said["trials"]) out.trials.push_back(trial_from_json(trial));
  for (const ordered_json& broken : said["broken"]) out.broken.push_back({broken["problem"], broken["fix"]});
  said.erase("trials");
  said.erase("broken");
  const LibraryVersion torch{"LibTorch", said.value("built_against", ""), said.value("found", "")};
  if (agreement(torch.built_against, torch.running) == Agreement::kOtherPatch) note_version(torch, out);
  out.torch = std::move(said);
}

// Native and widened are both well; so is what is refused and not needed.
void judge_trials(Diagnosis& out) {
  for (const Trial& trial : out.trials) {
    const bool is_broken = trial.verdict == Verdict::kWrong || (trial.verdict == Verdict::kRefused && trial.is_needed);
    if (!is_broken) continue;
    const bool is_ours = trial.operation.find("LibTorch") == std::string::npos;
    out.broken.push_back(
        {trial.operation + " in " + trial.dtype + ": " + trial.reason,
         is_ours ? "set HALFBYTE_ISA=ref and HALFBYTE_ONEDNN=off, and report this with `halfbyte doctor --json`"
                 : "install another version of LibTorch (2.13 was tested): tools/setup.sh"});
  }
}

void look_at_memory(Diagnosis& out) {
  constexpr std::uint64_t kLittle = 1'000'000'000;
  if (out.machine.available_bytes > 0 && out.machine.available_bytes < kLittle)
    out.notes.emplace_back("less than 1 GB of memory is free: models may not fit");
}

}  // namespace

Diagnosis diagnose() {
  Diagnosis out;
  out.machine = machine();
  look_at_memory(out);
  look_at_kernels(out);
  look_at_onednn(out);
  look_at_torch(out);
  const char* root = std::getenv("HALFBYTE_SYSROOT");  // NOLINT(concurrency-mt-unsafe): nobody of ours sets it
  look_at_gpus(root ? root : "/", out);
  judge_trials(out);
  return out;
}

Action prepare_doctor(OptionParser&, const CommonOptions& common) {
  return [&common] {
    const Diagnosis diagnosis = diagnose();
    (common.is_json ? print_diagnosis_json : print_diagnosis)(diagnosis);
    return diagnosis.broken.empty() ? ExitStatus::kDone : ExitStatus::kFailed;
  };
}

}  // namespace halfbyte::cli
