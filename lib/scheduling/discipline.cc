#include <string>
#include <string_view>

#include "sluice/link_schedule.h"

#include "absl/strings/str_cat.h"

namespace sluice {

std::string_view DisciplineName(Discipline discipline) {
  switch (discipline) {
    case Discipline::kUnscheduled:
      return "unscheduled";
    case Discipline::kBatches:
      return "batches";
    case Discipline::kRolling:
      return "rolling";
    case Discipline::kGrants:
      return "grants";
  }
  return "unknown";
}

absl::StatusOr<Discipline> ParseDiscipline(std::string_view name) {
  for (const Discipline discipline :
       {Discipline::kUnscheduled, Discipline::kBatches, Discipline::kRolling, Discipline::kGrants}) {
    if (name == DisciplineName(discipline)) return discipline;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("policy: \"", std::string(name), "\" is not known; use unscheduled, batches, rolling or grants"));
}

}  // namespace sluice
