#include "link_flags.h"

#include <map>
#include <string>

#include <CLI/CLI.hpp>

#include "program.h"

namespace sluice::examples::search {

void AddLinkFlags(CLI::App& app, ScheduleOptions& schedule, Searcher::Options& options) {
  LinkProfile& profile = schedule.profile;
  const auto bytes = CLI::AsSizeValue(/*kb_is_1000=*/false);
  const auto bytes_per_second = CLI::AsNumberWithUnit(
      std::map<std::string, double>{{"kbit", 1e3 / 8}, {"mbit", 1e6 / 8}, {"gbit", 1e9 / 8}},
      CLI::AsNumberWithUnit::Options(CLI::AsNumberWithUnit::CASE_INSENSITIVE | CLI::AsNumberWithUnit::UNIT_REQUIRED),
      "kbit, mbit or gbit");
  app.add_option("--capacity", profile.capacity_bytes_per_second, "Capacity of the link, such as 10gbit. Default 1gbit")
      ->transform(bytes_per_second);
  app.add_option("--buffer", profile.buffer_bytes, "Buffer of the switch port, such as 256kb. Default 32kb")
      ->transform(bytes);
  AddDuration(
      app, "--rtt", [&](absl::Duration rtt) { profile.propagation_rtt = rtt; },
      "Round trip without queueing. Default 100us");
  app.add_option_function<std::string>(
      "--policy",
      [&](const std::string& name) {
        const absl::StatusOr<SchedulePolicy> policy = ParseSchedulePolicy(name);
        if (!policy.ok()) throw CLI::ValidationError("--policy", std::string(policy.status().message()));
        schedule.policy = *policy;
      },
      "Policy of the schedule: unscheduled, batches, rolling or grants. Default grants");
  app.add_option("--budget", schedule.budget_bytes, "Bytes that may be in flight. Default: the buffer")
      ->transform(bytes);
  AddDuration(
      app, "--hedge-after", [&](absl::Duration time) { options.fan_out.hedge_after = time; },
      "Also ask a replica when a worker's response is not ready after this time");
  app.add_option("--hedge-quantile", options.fan_out.hedge_after_quantile,
                 "Also ask a replica after this quantile of the times of earlier responses, such as 0.95");
  app.add_option("--hedge-ratio", options.fan_out.hedge_ratio,
                 "Maximum share of the requests that are hedges. Default 0.1");
  const auto add_tls = [&](const char* name, std::string TlsOptions::*file, const char* help) {
    app.add_option_function<std::string>(
        name,
        [&options, file](const std::string& value) {
          (options.tls ? *options.tls : options.tls.emplace()).*file = value;
        },
        help);
  };
  add_tls("--tls-ca", &TlsOptions::ca_file, "Call the workers over TLS; this authority has signed their certificates");
  add_tls("--tls-server-name", &TlsOptions::server_name, "Name that the certificates of the workers must have");
  add_tls("--tls-client-certificate", &TlsOptions::certificate_file, "Certificate chain for workers that ask for one");
  add_tls("--tls-client-key", &TlsOptions::key_file, "Private key of that certificate");
}

}  // namespace sluice::examples::search
