#include "lib/storage/serving/worker_metrics.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/telemetry/scrape.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(OutcomeOfTest, MapsTheStatusesOfTheSruService) {
  EXPECT_EQ(OutcomeOf(absl::OkStatus()), WorkerOutcome::kOk);
  EXPECT_EQ(OutcomeOf(absl::NotFoundError("")), WorkerOutcome::kNotFound);
  EXPECT_EQ(OutcomeOf(absl::OutOfRangeError("")), WorkerOutcome::kOutOfRange);
  EXPECT_EQ(OutcomeOf(absl::InvalidArgumentError("")), WorkerOutcome::kInvalid);
  EXPECT_EQ(OutcomeOf(absl::CancelledError("")), WorkerOutcome::kCancelled);
  EXPECT_EQ(OutcomeOf(absl::InternalError("")), WorkerOutcome::kError);
  EXPECT_EQ(OutcomeOf(absl::DataLossError("")), WorkerOutcome::kDataLoss);
}

TEST(WorkerMetricsTest, CountsUnderTheLabelOfEachOutcome) {
  prometheus::Registry registry;
  WorkerMetrics metrics(registry);
  int count = 0;
  for (const WorkerOutcome outcome :
       {WorkerOutcome::kOk, WorkerOutcome::kNotFound, WorkerOutcome::kOutOfRange, WorkerOutcome::kInvalid,
        WorkerOutcome::kCancelled, WorkerOutcome::kDataLoss, WorkerOutcome::kError}) {
    ++count;
    for (int i = 0; i < count; ++i) metrics.CountCall(outcome);
    metrics.CountManifestRequest(outcome);
  }
  const std::string text = ScrapeText({&registry});
  count = 0;
  for (const std::string outcome : {"ok", "not_found", "out_of_range", "invalid", "cancelled", "data_loss", "error"}) {
    EXPECT_THAT(text, HasSubstr("\nsluice_worker_sru_requests_total{outcome=\"" + outcome + "\"} " +
                                std::to_string(++count) + "\n"));
    EXPECT_THAT(text, HasSubstr("\nsluice_worker_manifest_requests_total{outcome=\"" + outcome + "\"} 1\n"));
  }
}

TEST(WorkerMetricsTest, AddsBytesAndObservesReads) {
  prometheus::Registry registry;
  WorkerMetrics metrics(registry);
  metrics.AddSentBytes(10240);
  metrics.AddSentBytes(1);
  metrics.ObserveRead(absl::Milliseconds(2));
  EXPECT_THAT(ScrapeText({&registry}), AllOf(HasSubstr("\nsluice_worker_sent_bytes_total 10241\n"),
                                             HasSubstr("\nsluice_worker_read_seconds_bucket{le=\"0.0015\"} 0\n"),
                                             HasSubstr("\nsluice_worker_read_seconds_bucket{le=\"0.002\"} 1\n")));
}

}  // namespace
}  // namespace sluice
