// sluice-plan: the lossless-scheduling model on the command line, for those who size a service.
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "lib/cli/link_profile_flags.h"
#include "lib/cli/program.h"
#include "lib/cli/units.h"
#include "tools/sluice_plan/advice.h"
#include "tools/sluice_plan/plan_json.h"
#include "tools/sluice_plan/sizing.h"
#include "tools/sluice_plan/table.h"

namespace sluice {
namespace {

struct Flags {
  v1::LinkProfile link;
  int64_t workers = 0;
  std::string sru;
  std::string block;
  bool json = false;
  bool all = false;
};

// What the flags ask for, checked.
struct Request {
  LinkProfile profile;
  ReadSize size;
  Sizing sizing;
};

void AddFlags(CLI::App& app, Flags& flags) {
  AddLinkProfileFlags(app, flags.link);
  app.add_option("--workers", flags.workers, "N, the number of workers of one read; the table has rows from 1 to N")
      ->required();
  auto* size = app.add_option_group("Size of a read", "Give exactly one of the two");
  size->add_option("--sru", flags.sru, "Bytes that each worker answers with");
  size->add_option("--block", flags.block, "Bytes of the data block, which is striped over the workers");
  size->require_option(1);
  app.add_flag("--json", flags.json, "Print one JSON object for N instead of the table");
  app.add_flag("--all", flags.all, "Print every row of the table, not only peaks and troughs");
}

absl::Status Configure(const Flags& flags, Request& request) {
  const auto profile = ParseLinkProfile(flags.link);
  if (!profile.ok()) return profile.status();
  request.profile = *profile;
  absl::Status status = ParseField("sru", flags.sru, ParseByteSize, request.size.sru_bytes);
  if (!flags.block.empty()) status.Update(ParseField("block", flags.block, ParseByteSize, request.size.block_bytes));
  if (!status.ok()) return status;
  const auto sizing = SizeUp(request.profile, request.size, flags.workers);
  if (!sizing.ok()) return sizing.status();
  request.sizing = *sizing;
  return absl::OkStatus();
}

absl::Status Print(const Flags& flags, const Request& request) {
  if (flags.json) {
    std::cout << PlanJson(request.sizing);
    return absl::OkStatus();
  }
  std::vector<Sizing> rows;
  for (int64_t workers = 1; workers <= flags.workers; ++workers) {
    auto row = SizeUp(request.profile, request.size, workers);
    if (!row.ok()) return row.status();
    rows.push_back(*std::move(row));
  }
  PrintTable(rows, flags.all, std::cout);
  std::cout << "\n" << Advice(request.profile, request.size, request.sizing) << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Flags flags;
  sluice::Request request;
  return sluice::RunProgram(
      argc, argv,
      {.name = "sluice-plan",
       .description = "Sizes a service: how many workers may answer at once over a link without loss, how long a read "
                      "takes, and what happens without a schedule.",
       .add_flags = [&](CLI::App& app) { sluice::AddFlags(app, flags); },
       .configure = [&] { return sluice::Configure(flags, request); },
       .run = [&] { return sluice::Print(flags, request); }});
}
