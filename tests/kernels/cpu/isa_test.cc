#include "kernels/cpu/isa.h"

#include <catch2/catch.hpp>
#include <string>

namespace tessera::kernels {
namespace {

constexpr CpuFeatures kAll = {
    .avx2 = true, .avx512 = true, .avx512_bf16 = true, .avx512_vnni = true, .amx = true};

bool Mentions(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

TEST_CASE("auto is the best path that the features allow") {
  CHECK(*ParseIsa("auto", {}) == Isa::kReference);
  CHECK(*ParseIsa("auto", {.avx2 = true}) == Isa::kAvx2);
  CHECK(*ParseIsa("auto", {.avx2 = true, .avx512 = true}) == Isa::kAvx512);
  CHECK(*ParseIsa("auto", {.avx2 = true, .avx512 = true, .avx512_bf16 = true}) == Isa::kAvx512Bf16);
  CHECK(*ParseIsa("auto", kAll) == Isa::kAmx);
}

TEST_CASE("a path that the processor lacks is refused with what there is") {
  const absl::Status status = ParseIsa("avx512", {.avx2 = true}).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Mentions(status, "--cpu-isa=avx512"));
  CHECK(Mentions(status, "auto, reference, avx2"));
  CHECK_FALSE(Mentions(status, "avx2, avx512"));
}

TEST_CASE("a path that does not exist is refused") {
  const absl::Status status = ParseIsa("neon", {}).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(Mentions(status, "--cpu-isa=neon"));
  CHECK(Mentions(status, "auto, reference"));
}

TEST_CASE("every supported path parses back from its name") {
  CHECK(SupportedIsas(kAll).size() == 5);
  for (Isa isa : SupportedIsas(kAll)) CHECK(*ParseIsa(Name(isa), kAll) == isa);
}

TEST_CASE("a forced path is what its name says, however much more the processor has") {
  CHECK(*ParseIsa("avx512", kAll) == Isa::kAvx512);
  CHECK(Name(*ParseIsa("avx512_bf16", kAll)) == "avx512_bf16");
  const absl::Status status = ParseIsa("avx512_bf16", {.avx2 = true, .avx512 = true}).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Mentions(status, "auto, reference, avx2, avx512"));
}

TEST_CASE("this processor: wider features imply the narrower ones") {
  const CpuFeatures& features = DetectCpuFeatures();
  CHECK((!features.avx512 || features.avx2));
  CHECK((!features.avx512_bf16 || features.avx512));
  CHECK((!features.avx512_vnni || features.avx512));
  CHECK((!features.amx || features.avx512_bf16));
#ifdef __GNUC__
  CHECK((!features.avx2 || __builtin_cpu_supports("avx2")));
  CHECK((!features.avx512 || __builtin_cpu_supports("avx512bw")));
  CHECK((!features.avx512_bf16 || __builtin_cpu_supports("avx512bf16")));
  CHECK((!features.avx512_bf16 || __builtin_cpu_supports("avx512vbmi")));
#endif
}

}  // namespace
}  // namespace tessera::kernels
