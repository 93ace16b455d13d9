#include "deploy/check_command.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cmath>
#include <iostream>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "deploy/cluster_client.h"
#include "deploy/describe_machine.h"
#include "deploy/device_choice.h"
#include "deploy/failure.h"
#include "proto/build_version.h"
#include "proto/coordinator_list.h"
#include "proto/http_peer.h"
#include "proto/model/model_folder.h"
#include "proto/plain_text.h"
#include "proto/protocol.h"
#include "proto/run_folder.h"
#include "proto/tcp_probe.h"
#include "proto/worker_name.h"
#include "third_party/absl/str_cat.h"
#include "third_party/linux/host_name.h"
#include "tls/client_flags.h"
#include "tls/client_tls.h"
#include "tls/tls_probe.h"

namespace tessera::deploy {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr double kAskSeconds = 25;  // of it the coordinator tries three addresses
constexpr double kAskAgainSeconds = 15;
constexpr double kClockSeconds = 5;  // from which logs of two machines are hard to read together

bool IsAnyAddress(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

// Ports of this machine, taken while it is checked.
class Ports {
 public:
  // The address that others would use, or why the port cannot be had.
  absl::StatusOr<std::string> Take(const std::string& host, const std::string& port,
                                   const std::string& flag) {
    boost::system::error_code error;
    tcp::resolver resolver(context_);
    const auto found = resolver.resolve(host, port, tcp::resolver::passive, error);
    tcp::acceptor acceptor(context_);
    if (!error) {
      const tcp::endpoint endpoint = found.begin()->endpoint();
      if (!acceptor.open(endpoint.protocol(), error)) {
        acceptor.set_option(tcp::acceptor::reuse_address(true), error);
        if (!error) acceptor.bind(endpoint, error);
        if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
      }
    }
    if (error) {
      const bool foreign = error == asio::error::host_not_found ||
                           error.value() == boost::system::errc::address_not_available;
      return absl::UnavailableError(StrCat("cannot listen on ", host, " port ", port, ": ",
                                           error.message(),
                                           foreign ? ": --listen takes an address of this machine"
                                                   : StrCat(": name another with ", flag)));
    }
    acceptor.non_blocking(true, error);
    const int taken = acceptor.local_endpoint().port();
    acceptors_.push_back(std::move(acceptor));
    return HostAndPort(IsAnyAddress(host) ? HostName() : host, taken);
  }

  // Whether anybody has come to the port that was taken as the `index`th, or does so in time: the
  // way to an address may end at another program.
  bool Reached(size_t index) {
    constexpr int kLooks = 40;
    for (int i = 0; i < kLooks; ++i) {
      boost::system::error_code error;
      tcp::socket visitor(context_);
      acceptors_[index].accept(visitor, error);
      if (!error) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    return false;
  }

 private:
  asio::io_context context_;
  std::vector<tcp::acceptor> acceptors_;
};

CheckLine Well(std::string what, std::string found) {
  return {std::move(what), "", std::move(found)};
}
CheckLine Problem(std::string what, std::string problem) {
  return {std::move(what), std::move(problem), ""};
}
CheckLine Skipped(std::string what, std::string why) {
  return {std::move(what), "", std::move(why), true};
}

struct Listened {
  std::string what;     // of the line
  std::string flag;     // that names another address
  std::string address;  // that others would use
};

class Checks {
 public:
  Checks(const CheckFlags& flags, std::vector<std::string> coordinators)
      : flags_(flags), coordinators_(std::move(coordinators)) {}

  std::vector<CheckLine> Run() {
    TakePorts();
    const absl::StatusOr<ClientTls> tls = ReadClientTls(flags_.tls);
    if (!tls.ok()) {
      Say(Problem("TLS", std::string(StdView(tls.status().message()))));
    } else {
      tls_ = *tls;
      if (Coordinators() && Token()) Ask();
    }
    if (!asked_)
      Say(Skipped("the rest", "build, name, ways back, clock: once the coordinator answers"));
    Model();
    Devices();
    return std::move(lines_);
  }

 private:
  void Say(CheckLine line) { lines_.push_back(std::move(line)); }

  void TakePorts() {
    const HttpPeer listen = ParseHttpPeer(flags_.listen, "0").value();
    const auto take = [&](std::string what, const std::string& port, const char* port_flag,
                          const std::string& advertised, const char* flag) {
      auto address = ports_.Take(listen.host, port, port_flag);
      if (!address.ok())
        return Say(Problem(std::move(what), std::string(StdView(address.status().message()))));
      listened_.push_back({std::move(what), flag, advertised.empty() ? *address : advertised});
    };
    take("way back", listen.port, "--listen", flags_.advertise, "--advertise");
    take("links", StrCat(flags_.link_port), "--link-port", flags_.advertise_link,
         "--advertise-link");
    take("KV", StrCat(flags_.kv_port), "--kv-port", flags_.advertise_kv, "--advertise-kv");
  }

  // True: one of them can be asked. Of several, those that wait to lead need not answer.
  bool Coordinators() {
    std::vector<CheckLine> lines;
    for (const std::string& address : coordinators_) {
      lines.push_back(Coordinator(address));
      if (lines.back().problem.empty() && answering_.empty()) answering_ = address;
    }
    for (CheckLine& line : lines) {
      if (!line.problem.empty() && !answering_.empty() && line.what == "coordinator")
        line = Skipped(line.what, line.problem);
      Say(std::move(line));
    }
    return !answering_.empty();
  }

  CheckLine Coordinator(const std::string& address) const {
    const double began = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
    const absl::Status reached = Reach(address, 5);
    if (!reached.ok()) {
      return Problem(
          "coordinator",
          StrCat("nothing answers at ", address, ": ", std::string(StdView(reached.message())),
                 ": is it started there with --host and --grpc-port, and is the port "
                 "open to this machine?"));
    }
    const double seconds = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()) - began;
    const absl::Status spoken =
        ProbeTls({.address = address,
                  .tls = tls_,
                  .of_cluster = flags_.tls.ca.empty() && !flags_.tls.cluster.empty()});
    if (!spoken.ok()) {
      return Problem(absl::IsFailedPrecondition(spoken) ? "TLS" : "gRPC",
                     StrCat(address, ": ", std::string(StdView(spoken.message()))));
    }
    return Well("coordinator",
                StrCat(address, " answers in ", std::ceil(1e4 * seconds) / 10, " ms, ",
                       tls_.authorities.empty() ? "plainly" : "inside TLS"));
  }

  bool Token() {
    if (!flags_.cluster_token_file.empty()) {
      const auto read = ReadTokenFile(flags_.cluster_token_file);
      if (!read.ok()) {
        Say(Problem("token", std::string(StdView(read.status().message()))));
        return false;
      }
      token_ = *read;
    } else if (const auto port = LoopbackPort(coordinators_.front()); port.has_value()) {
      if (const auto secrets = RunFolder::Find(*port)) token_ = secrets->cluster_token;
    }
    return true;
  }

  void Ask() {
    v1::CheckWorkerRequest request;
    request.set_name(flags_.name.empty() ? StrCat(HostName(), "/0") : flags_.name);
    request.set_build_version(std::string(BuildVersion()));
    request.set_protocol_version(kProtocolVersion);
    for (const Listened& one : listened_) request.add_addresses(one.address);
    const CoordinatorDoor door = {.address = answering_,
                                  .admin_key = "",
                                  .tls = tls_,
                                  .has_cluster_tls = !flags_.tls.cluster.empty()};
    auto reply = AskToCheck(door, token_, request, kAskSeconds);
    for (double waited = 0; absl::IsResourceExhausted(reply.status()) && waited < kAskAgainSeconds;
         ++waited) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      reply = AskToCheck(door, token_, request, kAskSeconds);
    }
    if (!reply.ok()) {
      const std::string text(StdView(reply.status().message()));
      const bool token = absl::IsUnauthenticated(reply.status());
      const bool older = absl::IsUnimplemented(reply.status());
      Say(Problem(token                                        ? "token"
                  : older                                      ? "build"
                  : absl::IsFailedPrecondition(reply.status()) ? "TLS"
                                                               : "gRPC",
                  older ? StrCat("the coordinator is of a build that cannot check: this one is ",
                                 std::string(BuildVersion()), ", run the same build everywhere")
                        : text));
      return;
    }
    asked_ = true;
    Say(Well("token", token_.empty() ? "none is asked for" : "it is the coordinator's"));
    Say(Either("build", reply->build_problem(), std::string(BuildVersion())));
    Say(Either("name", reply->name_problem(), request.name()));
    for (int i = 0; i < request.addresses_size() && i < reply->address_problems_size(); ++i)
      Say(WayBack(i, reply->address_problems(i)));
    Clock(reply->unix_seconds());
    folder_ = reply->model_folder();
    fingerprint_ = reply->model_fingerprint();
    model_ = reply->model();
  }

  static CheckLine Either(std::string what, std::string problem, std::string found) {
    return problem.empty() ? Well(std::move(what), std::move(found))
                           : Problem(std::move(what), std::move(problem));
  }

  CheckLine WayBack(int index, const std::string& problem) {
    const Listened& one = listened_[index];
    if (problem.empty() && ports_.Reached(index))
      return Well(one.what, StrCat("the coordinator reaches ", one.address));
    if (problem.empty()) {
      return Problem(one.what, StrCat("the coordinator reaches another program at ", one.address,
                                      ", none of its connections came here: name with ", one.flag,
                                      " the address that leads to the port of this machine"));
    }
    std::string remedy = StrCat(
        "open the port to it (a firewall?), or name an address that it "
        "reaches with ",
        one.flag);
    if (const auto peer = ParseHttpPeer(one.address, ""); peer.ok() && IsLoopback(peer->host)) {
      remedy = StrCat(
          "only this machine reaches a loopback address: --listen takes an address of "
          "its network");
    }
    return Problem(one.what, StrCat("the coordinator does not reach ", one.address, ": ", problem,
                                    ": ", remedy));
  }

  void Clock(double there) {
    const double here = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
    const double apart = std::abs(here - there);
    Say(Either(
        "clock",
        apart > kClockSeconds
            ? StrCat("it is ", std::round(apart), " s ", here > there ? "ahead of" : "behind",
                     " the coordinator's: logs cannot be read together; set both by NTP")
            : "",
        StrCat("within ", kClockSeconds, " s of the coordinator's")));
  }

  void Model() {
    const std::string folder = flags_.model_folder.empty() ? folder_ : flags_.model_folder;
    if (folder.empty())
      return Say(Skipped("model", "its folder is not known; --model-folder names it"));
    const auto found = ResolveModelFolder(folder);
    const auto fingerprint = found.ok() ? Fingerprint(*found) : found.status();
    if (!fingerprint.ok()) {
      return Say(Problem("model", StrCat(std::string(StdView(fingerprint.status().message())),
                                         ": put the checkpoint there, or name its folder with "
                                         "--model-folder")));
    }
    if (fingerprint_.empty())
      return Say(Well("model", StrCat(folder, " can be read; not compared")));
    Say(Either("model",
               *fingerprint == fingerprint_
                   ? ""
                   : StrCat(folder, " is another checkpoint than the coordinator's ", model_,
                            ": put the same files on every machine"),
               StrCat(folder, " is the coordinator's ", model_)));
  }

  void Devices() {
    // Without GPUs in the list, memory is timed.
    const MachineFacts facts = ReadMachineFacts("", v1::DeviceList());
    const double gigabytes_per_second = std::round(facts.read_bytes_per_second / 1e8) / 10;
    Say(Well("cores", StrCat(facts.cores, " of this machine; together they read memory at ",
                             gigabytes_per_second, " GB/s")));
    const auto list = AskForDevices("");
    if (!list.ok()) return Say(Problem("GPUs", std::string(StdView(list.status().message()))));
    if (list->devices().empty()) return Say(Well("GPUs", StrCat("none: ", list->no_devices())));
    for (const v1::ListedDevice& one : list->devices()) {
      constexpr double kGiB = 1 << 30;
      Say(Either(one.device(), one.problem(),
                 StrCat(one.info().gpu_name(), ", ",
                        std::round(static_cast<double>(one.info().memory_bytes()) / kGiB),
                        " GiB, driver ", list->driver_version())));
    }
  }

  const CheckFlags& flags_;
  const std::vector<std::string> coordinators_;  // at least one
  ClientTls tls_;
  std::string answering_;  // of the coordinators, the one to ask; empty: none
  Ports ports_;
  std::vector<Listened> listened_;
  std::vector<CheckLine> lines_;
  std::string token_;
  bool asked_ = false;
  std::string folder_, fingerprint_, model_;  // of the coordinator
};

}  // namespace

void AddCheck(const Command& app, CheckFlags& flags) {
  const Command check = app.AddSubcommand(
      "check", "Say whether a worker started here with these flags could join, and what to mend");
  check
      .AddOption("--coordinator", flags.coordinator,
                 "The coordinator's gRPC address, of several (--ha) each, with commas between")
      .ShowDefault();
  check.AddOption("--cluster-token-file", flags.cluster_token_file,
                  "File with the secret that the cluster's processes share");
  check.AddOption("--name", flags.name,
                  "Device name that the worker will have; default: host name and /0");
  check.AddOption("--listen", flags.listen, "host:port of the worker's gRPC service").ShowDefault();
  check.AddOption("--advertise", flags.advertise,
                  "host:port at which the coordinator reaches the worker");
  check.AddOption("--link-port", flags.link_port, "TCP port for links from other workers")
      .Range(0, 65535)
      .ShowDefault();
  check.AddOption("--advertise-link", flags.advertise_link,
                  "host:port at which other workers reach the link port");
  check.AddOption("--kv-port", flags.kv_port, "TCP port for keys and values")
      .Range(0, 65535)
      .ShowDefault();
  check.AddOption("--advertise-kv", flags.advertise_kv,
                  "host:port at which other workers reach the KV port");
  check.AddOption("--model-folder", flags.model_folder,
                  "Folder of the checkpoint on this machine; default: the coordinator's path");
  AddClientTlsFlags(check, flags.tls);
  AddClusterTlsFlag(check, flags.tls);
}

std::string ShowCheck(const std::vector<CheckLine>& lines) {
  size_t width = 0;
  for (const CheckLine& line : lines) width = std::max(width, line.what.size());
  std::string text;
  for (const CheckLine& line : lines) {
    text += StrCat(!line.problem.empty() ? "FAIL  "
                   : line.skipped        ? "--    "
                                         : "ok    ",
                   line.what, std::string(width - line.what.size() + 2, ' '),
                   line.problem.empty() ? line.found : line.problem, "\n");
  }
  return text;
}

int RunCheck(const CheckFlags& flags) {
  std::string listen = flags.listen;
  if (listen.ends_with(":0")) listen.back() = '1';  // any port
  const auto coordinators = ReadCoordinatorList(flags.coordinator);
  if (!coordinators.ok()) return FailUsage(std::string(StdView(coordinators.status().message())));
  if (const std::string problem = WorkerNameProblem(flags.name);
      !flags.name.empty() && !problem.empty()) {
    return FailUsage(StrCat("--name '", WithoutControls(flags.name), "': ", problem));
  }
  for (const auto& [flag, address] :
       {std::pair<const char*, const std::string*>("--listen", &listen),
        std::pair("--advertise", &flags.advertise),
        std::pair("--advertise-link", &flags.advertise_link),
        std::pair("--advertise-kv", &flags.advertise_kv)}) {
    if (address->empty()) continue;
    if (absl::Status s = CheckHostPort(*address); !s.ok())
      return FailUsage(StrCat(flag, ": ", std::string(StdView(s.message()))));
  }
  const std::vector<CheckLine> lines = Checks(flags, *coordinators).Run();
  std::cout << ShowCheck(lines);
  const bool good = std::all_of(lines.begin(), lines.end(),
                                [](const CheckLine& line) { return line.problem.empty(); });
  return good ? 0 : 1;
}

}  // namespace tessera::deploy
