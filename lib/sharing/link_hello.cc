#include "lib/sharing/link_hello.h"

#include <algorithm>

#include "sluice/schedule.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr size_t kMaxApplication = 64;
constexpr double kMinWeight = 0.001;
constexpr double kMaxWeight = 1000;

bool IsLabelCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
}

}  // namespace

absl::Status CheckApplication(const std::string& application) {
  if (!application.empty() && application.size() <= kMaxApplication &&
      std::all_of(application.begin(), application.end(), IsLabelCharacter)) {
    return absl::OkStatus();
  }
  // Escape the name: it becomes part of an error message and of logs, and may be cut within a UTF-8 character.
  const std::string quoted = absl::CEscape(application.substr(0, 2 * kMaxApplication));
  return absl::InvalidArgumentError(
      absl::StrCat("application: \"", quoted, "\" is not 1 to ", kMaxApplication, " of [A-Za-z0-9._-]"));
}

absl::Status CheckWeight(double weight) {
  if (weight >= kMinWeight && weight <= kMaxWeight) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("weight: ", weight, " is outside of ", kMinWeight, " to ", kMaxWeight));
}

absl::Status CheckClasses(const std::vector<std::string>& names) {
  if (names.size() > TrafficClass::kMaxClasses) {
    return absl::InvalidArgumentError(
        absl::StrCat("classes: ", names.size(), " are more than ", TrafficClass::kMaxClasses));
  }
  for (const std::string& name : names) {
    if (name.empty() || name.size() > TrafficClass::kMaxNameBytes ||
        !std::all_of(name.begin(), name.end(), IsLabelCharacter)) {
      const std::string quoted = absl::CEscape(name.substr(0, 2 * TrafficClass::kMaxNameBytes));
      return absl::InvalidArgumentError(
          absl::StrCat("classes: \"", quoted, "\" is not 1 to ", TrafficClass::kMaxNameBytes, " of [A-Za-z0-9._-]"));
    }
    if (std::count(names.begin(), names.end(), name) > 1) {
      return absl::InvalidArgumentError(absl::StrCat("classes: \"", name, "\" comes twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice
