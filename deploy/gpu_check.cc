// gpu_check: the first minutes on a machine with a GPU. Each check is a process with a time limit,
// as an error on a GPU stays with its process; results are a table and a JSON file.
//
//   bin/gpu_check                 from the archive of //deploy:gpu_bundle
//   bin/gpu_check --emulated      the same on the emulated GPU: what can be tried anywhere

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "deploy/processes/child_process.h"
#include "third_party/absl/str_cat.h"
#include "third_party/cli11/flags.h"

namespace tessera::deploy {
namespace {

namespace fs = std::filesystem;

struct Check {
  std::string name;
  std::vector<std::string> command;  // the program first, under the bundle's folder
  double limit_seconds = 0;
  std::string wants;  // what its output has where it passed: a test that skips passes nothing
  std::string left_out = {};  // why it is not run here, which is no failure; empty: it is
};

enum class Outcome { kPassed, kFailed, kTooLong, kNotRun, kLeftOut };

struct Result {
  Outcome outcome = Outcome::kNotRun;
  double seconds = 0;
  std::string detail;
};

constexpr const char* kNames[] = {"passed", "FAILED", "TOO LONG", "not run", "left out"};
constexpr const char* kAllPassed = "All tests passed";

// The full path of a program that the machine has, or "".
std::string FindInPath(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::stringstream folders(StrCat(path == nullptr ? "" : path, ":/usr/local/cuda/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = StrCat(folder, "/", name);
    if (!folder.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// NVIDIA's tool over the tests of kernels: reads and writes outside of memory, and races in shared
// memory.
void AddSanitizer(bool emulated, std::vector<Check>* checks) {
  const std::string sanitizer = FindInPath("compute-sanitizer");
  std::string left_out;
  if (sanitizer.empty()) left_out = "there is no compute-sanitizer here; CUDA toolkits have it";
  if (emulated) left_out = "compute-sanitizer is for GPUs";
  for (const char* tool : {"memcheck", "racecheck"}) {
    for (const char* test : {"plain_kernels", "linear_kernels", "tensor_attention", "kv_kernels"}) {
      checks->push_back(
          {StrCat(tool, ": ", test),
           {sanitizer, "--tool", tool, "--error-exitcode", "9", StrCat("bin/", test, "_gpu_test")},
           60,
           kAllPassed,
           left_out});
    }
  }
}

// How well and how fast the whole daemon answers. The bars of gpu_bench are not held here.
void AddDaemon(bool emulated, std::vector<Check>* checks) {
  const std::string device = emulated ? "cuda-emulated" : "cuda:0";
  checks->push_back({"answers",
                     {"deploy/demo_model/count_answers", "bin", emulated ? "2" : "100", "--devices",
                      device, "--ready-timeout", "60"},
                     emulated ? 180.0 : 90.0,
                     "exact",
                     FindInPath("python3").empty() ? "there is no python3 here" : ""});
  checks->push_back({emulated ? "tiny over HTTP" : "8B over HTTP",
                     {"bin/gpu_bench", "--device", device, "--only", "served", "--measure-only"},
                     240,
                     "tokens/s over HTTP"});
}

// In the order in which they say most. The limits are far above what is expected.
std::vector<Check> Checks(bool emulated) {
  const std::string kind = emulated ? "emulated" : "gpu";
  std::vector<Check> checks = {{"devices",
                                {"bin/tessera-worker", "--list-devices"},
                                30,
                                emulated ? "cuda-emulated" : "cuda:"}};
  for (const char* name : {"warp_ops", "cuda_device", "cuda_graphs", "mapped_sums", "device_hops",
                           "plain_kernels", "linear_kernels", "tensor_attention", "kv_kernels"}) {
    checks.push_back({name, {StrCat("bin/", name, "_", kind, "_test")}, 120, kAllPassed});
  }
  // Every op against the CPU's reference, and whole models against Hugging Face transformers.
  for (const char* ops :
       {"rows", "positions", "linear", "experts", "attention", "delta_net", "float16", "sample"}) {
    checks.push_back({StrCat("ops: ", ops), {StrCat("bin/", ops, "_test")}, 120, kAllPassed});
  }
  checks.push_back({"golden models", {"bin/model_golden_test", "*CUDA device*"}, 180, kAllPassed});
  AddSanitizer(emulated, &checks);
  checks.push_back(
      {"shipped model",
       {"bin/tessera", "up", "deploy/demo_model/tessera-demo", "--devices",
        emulated ? "cuda-emulated" : "cuda:0", "--port", "0", "--grpc-port", "0", "--ready-timeout",
        "90", "--once", "--ask", "What is 57 + 85?", "--expect", "142"},
       180,
       "142"});
  AddDaemon(emulated, &checks);
  return checks;
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string LastLine(const fs::path& file) {
  std::ifstream in(file);
  std::string last;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

bool Holds(const fs::path& file, const std::string& text) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
}

Result Run(const Check& check, const fs::path& log, double left_seconds) {
  if (!check.left_out.empty()) return {Outcome::kLeftOut, 0, check.left_out};
  Result result;
  const double limit_seconds = std::min(check.limit_seconds, left_seconds);
  std::error_code not_there;
  fs::remove(log, not_there);  // an earlier run's; what is written is appended
  const double begin = Now();
  auto process = ChildProcess::Start(check.name, check.command, log);
  if (!process.ok()) {
    return {Outcome::kFailed, 0, std::string(process.status().message())};
  }
  const bool ended = process->WaitFor(limit_seconds);
  result.seconds = Now() - begin;
  if (!ended) {
    result.outcome = Outcome::kTooLong;
    result.detail = absl::StrFormat("killed after %.0f s; %s", limit_seconds, log.string());
    return result;
  }
  const std::string how = process->Ended().value_or("");
  const bool passed = how == "exited with code 0" && Holds(log, check.wants);
  result.outcome = passed ? Outcome::kPassed : Outcome::kFailed;
  result.detail = result.outcome == Outcome::kPassed
                      ? LastLine(log)
                      : StrCat(how, ": ", LastLine(log), "; ", log.string());
  return result;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + "\"";
}

void WriteJson(const std::vector<Check>& checks, const std::vector<Result>& results,
               const fs::path& file) {
  std::ofstream out(file);
  out << "[\n";
  for (size_t i = 0; i < checks.size(); ++i) {
    out << absl::StrFormat(
        " {\"name\": %s, \"outcome\": \"%s\", \"seconds\": %.3f, \"detail\": %s}%s\n",
        Quoted(checks[i].name), kNames[static_cast<int>(results[i].outcome)], results[i].seconds,
        Quoted(results[i].detail), i + 1 < checks.size() ? "," : "");
  }
  out << "]\n";
}

// The bundle's folder, which has this program's as a part; its libraries are found by what runs
// here.
bool GoToBundle() {
  std::error_code error;
  const fs::path bundle = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  if (!error) fs::current_path(bundle, error);
  // Some machines have the driver and NVIDIA's libraries on this path alone.
  const char* const path = std::getenv("LD_LIBRARY_PATH");
  setenv("LD_LIBRARY_PATH",
         StrCat((bundle / "lib").string(), path == nullptr ? "" : ":", path == nullptr ? "" : path)
             .c_str(),
         1);
  return !error && fs::exists("bin/tessera-worker", error);
}

// 0: all passed that are not left out.
int RunAll(bool emulated, const fs::path& folder, double limit_seconds) {
  // For the tests of ops and models: this device alone (tests/kernels/device_under_test.h).
  setenv("CUDA_TEST_DEVICE", emulated ? "cuda-emulated" : "cuda:0", 1);
  const std::vector<Check> checks = Checks(emulated);
  std::vector<Result> results(checks.size());
  fs::create_directories(folder);
  const double end = Now() + limit_seconds;
  bool passed = true;
  for (size_t i = 0; i < checks.size(); ++i) {
    if (Now() < end) {
      results[i] = Run(checks[i], folder / absl::StrFormat("%d.log", i), end - Now());
    } else {
      results[i].detail = StrCat("the ", limit_seconds, " s of --limit are over");
    }
    const Outcome outcome = results[i].outcome;
    passed = passed && (outcome == Outcome::kPassed || outcome == Outcome::kLeftOut);
    std::cout << absl::StrFormat("%-26s %-8s %7.1f s  %s", checks[i].name,
                                 kNames[static_cast<int>(results[i].outcome)], results[i].seconds,
                                 results[i].detail)
              << std::endl;
    WriteJson(checks, results, folder / "results.json");
  }
  std::cout << "results are in " << (folder / "results.json").string() << std::endl;
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace tessera::deploy

int main(int argc, char** argv) {
  tessera::Program app("Checks the GPU's kernels and the daemon on this machine.", "gpu_check");
  bool emulated = false;
  double limit_seconds = 600;
  std::string folder = "gpu_check_results";
  app.AddSwitch("--emulated", emulated, "On the emulated GPU instead");
  app.AddOption("--out", folder, "Folder for results.json and the logs").ShowDefault();
  app.AddOption("--limit", limit_seconds, "Seconds after which no further check begins")
      .ShowDefault();
  const auto outcome = app.Parse(argc, argv);
  if (!outcome.ok()) {
    std::cerr << "gpu_check: " << std::string(outcome.status().message()) << " (see --help)\n";
    return 2;
  }
  if (*outcome == tessera::ParseOutcome::kPrinted) return 0;
  const auto absolute = std::filesystem::absolute(folder);
  if (!tessera::deploy::GoToBundle()) {
    std::cerr
        << "gpu_check: beside this program there is no tessera-worker: start it in the folder "
           "that //deploy:gpu_bundle packs\n";
    return 2;
  }
  return tessera::deploy::RunAll(emulated, absolute, limit_seconds);
}
