#include "deploy/models_command.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_format.h"
#include "proto/data_types.h"
#include "proto/layers/layer_sizes.h"
#include "proto/layers/layers.h"
#include "proto/model/families/families.h"
#include "proto/model/folder_contents.h"
#include "proto/model/formats/formats.h"
#include "proto/model/model_folder.h"
#include "proto/model/model_tensors.h"
#include "proto/model/weight_files.h"
#include "scheduler/cost/model_shape.h"
#include "third_party/absl/str_cat.h"

namespace tessera::deploy {
namespace {

std::string Bytes(double bytes) {
  if (bytes >= 0x1p30) return absl::StrFormat("%.2f GiB", bytes / 0x1p30);
  if (bytes >= 0x1p20) return absl::StrFormat("%.2f MiB", bytes / 0x1p20);
  return absl::StrFormat("%.2f KiB", bytes / 0x1p10);
}

std::string TypeName(v1::DataType type) {
  if (type == v1::DATA_TYPE_UNSPECIFIED) return "of no type that config.json names";
  return std::string(NameOf(type));
}

std::string RotationText(const v1::Attention& attention) {
  if (!attention.has_rope()) return "not rotated";
  const v1::Rope& rope = attention.rope();
  const char* scaling = "";
  switch (rope.scaling()) {
    case v1::ROPE_SCALING_KIND_LINEAR: scaling = ", linear"; break;
    case v1::ROPE_SCALING_KIND_DYNAMIC: scaling = ", dynamic"; break;
    case v1::ROPE_SCALING_KIND_LLAMA3: scaling = ", llama3"; break;
    case v1::ROPE_SCALING_KIND_YARN: scaling = ", yarn"; break;
    case v1::ROPE_SCALING_KIND_LONGROPE: scaling = ", longrope"; break;
    case v1::ROPE_SCALING_KIND_PROPORTIONAL: scaling = ", proportional"; break;
    default: break;
  }
  return absl::StrFormat("rope of base %g%s", rope.theta(), scaling);
}

std::string SeenText(const v1::Attention& attention) {
  if (attention.chunked()) return StrCat("chunks of ", attention.window(), " tokens");
  if (attention.window() > 0) return StrCat("a window of ", attention.window(), " tokens");
  return "all tokens seen";
}

std::string AttentionText(const v1::Attention& attention) {
  if (attention.has_latent()) {
    return StrCat(attention.heads(), " heads that read one latent of ", attention.latent().rank(),
                  " and ", attention.rope().rotary_dim(), " (MLA), ", SeenText(attention), ", ",
                  RotationText(attention));
  }
  return StrCat(attention.heads(), attention.output_gate() ? " gated heads and " : " heads and ",
                attention.kv_heads(), " kv heads of ", attention.head_dim(),
                attention.borrows_kv() ? " of an earlier layer, " : ", ", SeenText(attention), ", ",
                RotationText(attention));
}

std::string DeltaText(const v1::GatedDelta& delta) {
  return StrCat("a gated delta net of ", delta.key_heads(), " key heads of ", delta.key_dim(),
                " and ", delta.value_heads(), " value heads of ", delta.value_dim());
}

std::string KindText(const v1::LayerKind& kind) {
  const v1::Ffn& ffn = kind.ffn();
  std::string text = kind.has_delta() ? DeltaText(kind.delta()) : AttentionText(kind.attention());
  if (ffn.has_experts()) {
    text += StrCat("; ", ffn.experts().per_token(), " of ", ffn.experts().count(),
                   " experts of width ", ffn.experts().width());
  }
  if (ffn.width() > 0) {
    text += StrCat(ffn.has_experts() ? " beside a shared ffn of width " : "; ffn of width ",
                   ffn.width());
  }
  return text + (ffn.gated() ? ", gated" : "");
}

// How many layers are of the kind.
int64_t CountOf(const v1::Model& model, int kind) {
  int64_t count = 0;
  for (const v1::LayerRun& run : model.layers()) count += run.kind() == kind ? run.count() : 0;
  return count;
}

std::string LayersText(const v1::Model& model) {
  std::string text = StrCat("layers:   ", LayerCount(model), "\n");
  for (int i = 0; i < model.kinds_size(); ++i) {
    const LayerShape shape = ShapeOf(model, model.kinds(i));
    const auto kv = static_cast<double>(KvElementsPerToken(shape, WholeLayer(shape)));
    const auto codes =
        static_cast<double>(KvBytesPerToken(shape, WholeLayer(shape), KvCodeElement()));
    const auto state = static_cast<double>(StateElements(shape, WholeLayer(shape)));
    const auto count = static_cast<double>(CountOf(model, i));
    text += StrCat("  ", CountOf(model, i), " with ", KindText(model.kinds(i)), "; ",
                   state > 0 ? StrCat("states of ", Bytes(kStateElementBytes * state * count),
                                      " per sequence in float32\n")
                             : StrCat("KV ", Bytes(2 * kv * count), " per token in 16 bits, ",
                                      Bytes(codes * count), " in 8\n"));
  }
  return text;
}

std::string WeightsText(const v1::Model& model, double bytes) {
  const v1::Quantization& quantization = model.quantization();
  if (quantization.format() == v1::WEIGHT_FORMAT_GGUF) {
    const std::string kept = absl::StrFormat(
        "weights:  %s as workers hold them; matrices of layers (GGUF) kept as codes", Bytes(bytes));
    const double decoded = quantization.decoded_part();
    if (decoded == 0) return StrCat(kept, "\n");
    return StrCat(kept,
                  absl::StrFormat(", but for %.0f %% of a layer or less, counted as decoded to "
                                  "%s\n",
                                  100 * decoded, TypeName(model.dtype())));
  }
  const std::string_view format = FormatName(model.quantization());
  const bool int4 = KeepsInt4(model) && quantization.format() != v1::WEIGHT_FORMAT_MXFP4;
  const std::string matrices = int4 ? StrCat(", matrices of layers int4 (", format, ")")
                               : model.has_quantization() ? StrCat(", matrices stored as ", format)
                                                          : std::string();
  return StrCat("weights:  ", Bytes(bytes), " as held, ", TypeName(model.dtype()), matrices, "\n");
}

// How a device holds matrices that the files have as codes, where a weight takes so many bytes.
std::string QuantisedText(const QuantisedMatrices& matrices, double weight_bytes) {
  std::string text;
  if (matrices.kept > 0) text += StrCat("; ", matrices.kept, " matrices kept as codes");
  if (matrices.decoded > 0) {
    text += StrCat("; ", matrices.decoded, " matrices decoded when they are read: ",
                   Bytes(static_cast<double>(matrices.decoded_code_bytes)), " of codes become ",
                   Bytes(static_cast<double>(matrices.decoded_weights) * weight_bytes));
  }
  return text;
}

std::string DevicesText(const CheckedModel& checked) {
  const v1::DataType type = checked.model.dtype();
  const bool half = type == v1::DATA_TYPE_FLOAT16;
  const double gpu_bytes = scheduler::BytesPerElement(type);
  const double cpu_bytes = type == v1::DATA_TYPE_BFLOAT16 ? 2 : 4;
  const std::string int8 =
      KeepsInt4(checked.model) ? "" : "; --quantization int8 halves 16-bit weights";
  return StrCat("on a CPU: computed in ", half ? "float32 (exact)" : "the stored type",
                QuantisedText(checked.quantised_on_cpus, cpu_bytes), int8, "\n",
                "on a GPU: computed in the stored type, bfloat16 as float16 before Ampere",
                QuantisedText(checked.quantised, gpu_bytes), int8, "\n");
}

// Not OK: a file of its weights is not there.
absl::Status FindWeights(std::string_view name_or_path) {
  const auto folder = ResolveModelFolder(name_or_path);
  if (!folder.ok()) return folder.status();
  const auto paths = WeightFiles(*folder);
  if (!paths.ok()) return paths.status();
  for (const std::filesystem::path& path : *paths) {
    std::error_code error;
    if (!std::filesystem::exists(path, error))
      return absl::NotFoundError(StrCat(path.string(), " is missing"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ListModels() {
  std::string text = "families (class in config.json):\n";
  for (const Family* family : Families()) {
    text += absl::StrFormat("  %-26s %s\n", family->name, family->architecture);
  }
  text +=
      "weights, in safetensors:\n"
      "  float32, float16, bfloat16; int8 from these by --quantization int8\n";
  for (const std::string_view format : FormatTexts()) text += StrCat("  ", format, "\n");
  return text +
         "  (4 bits and fewer are kept as codes where that is exact, others decoded when read)\n"
         "weights, in GGUF files: " +
         GgufTypeTexts() +
         "\n"
         "devices:\n"
         "  CPUs (x86-64); NVIDIA GPUs from compute capability 7.5 on\n"
         "tessera models PATH says what one checkpoint is\n";
}

std::string ModelsMarkdown() {
  std::string text = "| family | class in config.json |\n|---|---|\n";
  for (const Family* family : Families()) {
    text += StrCat("| ", family->name, " | `", family->architecture, "` |\n");
  }
  return text;
}

absl::StatusOr<std::string> DescribeModel(std::string_view name_or_path) {
  absl::StatusOr<CheckedModel> checked = ReadCheckedModel(name_or_path);
  if (!checked.ok()) return checked.status();
  const v1::Model& model = checked->model;
  const absl::StatusOr<scheduler::ModelShape> shape = scheduler::MakeModelShape(model);
  if (!shape.ok()) return shape.status();
  std::string text =
      StrCat("model:    ", model.name(), "\nfamily:   ", FindFamily(model.architecture())->name,
             " (", model.architecture(), ")\n", "context:  ", model.max_positions(), " tokens\n",
             LayersText(model), WeightsText(model, scheduler::TotalWeightBytes(*shape)),
             DevicesText(*checked));
  if (absl::Status s = FindWeights(name_or_path); !s.ok()) {
    text += StrCat("warning: it cannot be served yet: ", StdView(s.message()), "\n");
  }
  if (const auto folder = ResolveModelFolder(name_or_path); folder.ok()) {
    if (absl::Status s = CheckTokenizerFiles(*folder); !s.ok()) {
      text += StrCat("warning: it cannot be served yet: ", StdView(s.message()), "\n");
    }
  }
  for (const std::string& warning : checked->warnings) text += StrCat("warning: ", warning, "\n");
  return text;
}

}  // namespace tessera::deploy
