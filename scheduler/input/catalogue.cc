#include "scheduler/input/catalogue.h"

#include <cctype>
#include <string>

#include "proto/document.h"
#include "scheduler/input/embedded_documents.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {

std::string PlainKindName(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '.') {
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return plain;
}

absl::StatusOr<v1::DeviceCatalogue> BuiltInDevices() {
  v1::DeviceCatalogue catalogue;
  if (absl::Status s =
          ReadDocument(DeviceCatalogueText(), "deploy/devices/catalogue.yaml", &catalogue);
      !s.ok()) {
    return s;
  }
  return catalogue;
}

absl::StatusOr<v1::ModelCatalogue> BuiltInModels() {
  v1::ModelCatalogue catalogue;
  if (absl::Status s = ReadDocument(ModelCatalogueText(), "deploy/models/models.yaml", &catalogue);
      !s.ok())
    return s;
  return catalogue;
}

absl::StatusOr<v1::Model> BuiltInModel(std::string_view name) {
  const absl::StatusOr<v1::ModelCatalogue> catalogue = BuiltInModels();
  if (!catalogue.ok()) return catalogue.status();
  std::string known;
  for (const v1::Model& model : catalogue->models()) {
    if (PlainKindName(model.name()) == PlainKindName(name)) return model;
    known += StrCat(known.empty() ? "" : ", ", model.name());
  }
  return absl::NotFoundError(StrCat("no built-in model is called ", name, "; there are ", known,
                                    "; or name a Hugging Face folder"));
}

const v1::DeviceKind* FindKind(const v1::DeviceCatalogue& catalogue, std::string_view name) {
  const std::string wanted = PlainKindName(name);
  for (const v1::DeviceKind& kind : catalogue.kinds()) {
    if (PlainKindName(kind.name()) == wanted) return &kind;
    for (const std::string& alias : kind.aliases()) {
      if (PlainKindName(alias) == wanted) return &kind;
    }
  }
  return nullptr;
}

bool HasWorker(const v1::DeviceKind& kind) {
  const bool old =
      kind.compute_capability() > 0 && kind.compute_capability() < kMinNvidiaCapability;
  return !old && !kind.planned_only();
}

}  // namespace tessera::scheduler
