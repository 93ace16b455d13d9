#include "tests/bench/served.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/coordinator/http_client.h"

namespace tessera {
namespace {

constexpr int kPatienceSeconds = 60;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(2);
}

void Nap() { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

std::string Read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The number after `key` in a text of "key value" lines.
int64_t NumberAfter(const std::string& text, const std::string& key) {
  const size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + key.size());
}

}  // namespace

std::string Runfile(const std::string& path) {
  const char* runfiles = std::getenv("RUNFILES_DIR");
  if (std::filesystem::exists(path) || runfiles == nullptr) return path;
  return std::string(runfiles) + "/tessera/" + path;
}

Served::Served(std::vector<std::string> flags, const std::string& model) {
  const std::string ports = folder_.path() / "ports";
  std::vector<std::string> arguments = {Runfile("coordinator/tessera-coordinator"),
                                        Runfile(model),
                                        "--port",
                                        "0",
                                        "--grpc-port",
                                        "0",
                                        "--port-file",
                                        ports};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  auto process = deploy::ChildProcess::Start("coordinator", arguments, folder_.path() / "log");
  if (!process.ok()) Die(std::string(process.status().message()));
  process_ = std::make_unique<deploy::ChildProcess>(*std::move(process));
  pid_ = process_->pid();
  for (int i = 0; i < 20 * kPatienceSeconds && !std::filesystem::exists(ports); ++i) {
    if (process_->Ended().has_value()) break;
    Nap();
  }
  const std::string text = Read(ports);
  unsigned http = 0;
  unsigned grpc = 0;
  if (std::sscanf(text.c_str(), "http=%u grpc=%u", &http, &grpc) != 2) {
    Die("the coordinator did not start:\n" + Log());
  }
  http_port_ = static_cast<uint16_t>(http);
  grpc_address_ = "127.0.0.1:" + std::to_string(grpc);
}

void Served::WaitUntilReady() {
  for (int i = 0; i < 20 * kPatienceSeconds; ++i) {
    coordinator::HttpClient client(http_port_);
    if (client.SendRequest("GET", "/ready", "") && client.Receive().status == 200) return;
    Nap();
  }
  Die("no worker became ready:\n" + Log());
}

int64_t Served::MemoryBytes() const {
  const std::string rollup = Read("/proc/" + std::to_string(pid_) + "/smaps_rollup");
  return NumberAfter(rollup, "\nPss:") * 1024;
}

double Served::CpuSeconds() const {
  const std::string stat = Read("/proc/" + std::to_string(pid_) + "/stat");
  long long user = 0;
  long long system = 0;
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::sscanf(stat.c_str() + name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld",
              &user, &system);
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::string Served::Log() const { return Read(folder_.path() / "log"); }

}  // namespace tessera
