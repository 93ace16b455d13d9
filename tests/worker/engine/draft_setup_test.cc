// What a Configure message makes of drafts.
#include "worker/engine/draft_setup.h"

#include <catch2/catch.hpp>

namespace tessera::worker {
namespace {

EngineOptions Options(int64_t sequences) {
  EngineOptions options;
  options.limits.max_sequences = options.limits.max_logit_rows = sequences;
  return options;
}

v1::ConfigureRequest Ngram() {
  v1::ConfigureRequest request;
  request.set_speculation(v1::SPECULATION_NGRAM);
  return request;
}

TEST_CASE("off drafts nothing and costs nothing") {
  for (const auto kind : {v1::SPECULATION_UNSPECIFIED, v1::SPECULATION_OFF}) {
    v1::ConfigureRequest request;
    request.set_speculation(kind);
    EngineOptions options = Options(8);
    REQUIRE(ReadDrafts(request, &options).ok());
    CHECK(options.draft_source == nullptr);
    CHECK(options.limits.max_logit_rows == 8);
  }
}

TEST_CASE("drafts have logit rows: seven a sequence, 64 at most, none more in a planned pool") {
  const auto rows = [](int64_t sequences, const v1::ConfigureRequest& request) {
    EngineOptions options = Options(sequences);
    REQUIRE(ReadDrafts(request, &options).ok());
    CHECK(options.draft_source() != nullptr);
    return options.limits.max_logit_rows;
  };
  CHECK(rows(1, Ngram()) == 7);
  CHECK(rows(8, Ngram()) == 56);
  CHECK(rows(16, Ngram()) == 64);
  CHECK(rows(256, Ngram()) == 256);
  v1::ConfigureRequest two = Ngram();
  two.set_max_draft_tokens(2);
  CHECK(rows(8, two) == 24);
  v1::ConfigureRequest planned = Ngram();
  planned.set_kv_cache_bytes_planned(true);
  CHECK(rows(8, planned) == 8);
}

TEST_CASE("values that are none are refused by name") {
  for (const int32_t most : {-1, 7}) {
    v1::ConfigureRequest request = Ngram();
    request.set_max_draft_tokens(most);
    EngineOptions options = Options(8);
    const absl::Status status = ReadDrafts(request, &options);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Catch::Contains("max_draft_tokens"));
  }
  v1::ConfigureRequest request;
  request.set_speculation(static_cast<v1::Speculation>(77));
  EngineOptions options = Options(8);
  CHECK(absl::IsInvalidArgument(ReadDrafts(request, &options)));
}

}  // namespace
}  // namespace tessera::worker
