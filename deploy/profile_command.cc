#include "deploy/profile_command.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "deploy/failure.h"
#include "deploy/measured_cluster.h"
#include "deploy/plan_file.h"
#include "proto/protocol.h"
#include "proto/written_file.h"
#include "third_party/absl/str_cat.h"

namespace tessera::deploy {
namespace {

constexpr double kConnectSeconds = 5;
// The most that the coordinator waits for one worker, and for one link.
constexpr double kWorkerSeconds = 120;
constexpr double kLinkSeconds = 10;

absl::Status CheckOut(const ProfileFlags& flags) {
  if (flags.out.empty()) return absl::OkStatus();
  std::error_code ignored;
  if (absl::Status s = CheckCanWrite(flags.out); !s.ok())
    return absl::InvalidArgumentError(StrCat("--out: ", std::string(s.message())));
  if (flags.force || !std::filesystem::exists(flags.out, ignored)) return absl::OkStatus();
  return absl::AlreadyExistsError(StrCat("--out: ", flags.out,
                                         " exists, and may have been edited; name another file, or "
                                         "replace it with --force"));
}

// What `tessera profile` writes.
absl::StatusOr<std::string> Measure(const ProfileFlags& flags) {
  const absl::StatusOr<CoordinatorDoor> door = ReadDoor(flags.coordinator);
  if (!door.ok()) return door.status();
  const absl::StatusOr<v1::GetClusterReply> cluster = FetchCluster(*door, kConnectSeconds);
  if (!cluster.ok()) return cluster.status();
  std::vector<std::string> workers;
  for (const v1::WorkerStatus& worker : cluster->workers()) {
    if (worker.state() != v1::WORKER_STATE_LOST) workers.push_back(worker.name());
  }
  if (absl::Status s = CheckCanDescribe(workers); !s.ok()) return s;
  std::cerr << "measuring " << workers.size() << (workers.size() == 1 ? " worker" : " workers")
            << ", those of one machine at the same time, then the links between machines\n";
  const auto count = static_cast<double>(workers.size());
  const double timeout_seconds =
      kConnectSeconds + kWorkerSeconds * count + kLinkSeconds * count * (count + 1) / 2;
  const absl::Time now = absl::Now();
  const absl::StatusOr<v1::ProfileClusterReply> measured =
      MeasureCluster(*door, flags.while_serving, timeout_seconds);
  if (!measured.ok()) return measured.status();
  const absl::TimeZone utc = absl::UTCTimeZone();
  return DescribeMeasured(*measured, absl::FormatTime("%Y-%m-%d", now, utc),
                          absl::FormatTime("%Y-%m-%d %H:%M UTC", now, utc));
}

}  // namespace

void AddProfile(const Command& app, ProfileFlags& flags) {
  const Command profile = app.AddSubcommand(
      "profile", "Measure a running cluster's workers and links, write its description");
  AddCoordinatorFlags(profile, flags.coordinator);
  profile.AddOption("--out", flags.out, "File to write; default: stdout");
  profile.AddSwitch("--force", flags.force, "Replace --out if it exists");
  profile.AddSwitch("--while-serving", flags.while_serving,
                    "Measure while requests are in flight; they are slower meanwhile, and the "
                    "measured rates lower");
}

int RunProfile(const ProfileFlags& flags) {
  if (absl::Status s = CheckOut(flags); !s.ok()) return Fail(s);
  const absl::StatusOr<std::string> text = Measure(flags);
  if (!text.ok()) return Fail(text.status());
  if (flags.out.empty()) {
    std::cout << *text;
    return 0;
  }
  if (absl::Status s = WriteFileText(flags.out, *text); !s.ok()) return Fail(s);
  std::cout << "the cluster is described in " << flags.out << "\n";
  return 0;
}

}  // namespace tessera::deploy
