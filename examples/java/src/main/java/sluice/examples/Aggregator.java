package sluice.examples;

import com.google.gson.FieldNamingPolicy;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import sluice.testbed.v1.AnswersOuterClass.AnswerRequest;
import sluice.testbed.v1.AnswersOuterClass.AnswerResponse;

/**
 * An aggregator written with grpc-java, without Sluice. It calls all workers at once, waits for all responses, and starts
 * again. Prints the times in JSON.
 */
public final class Aggregator {
  private static final List<String> FLAGS =
      List.of(
          "workers", // host:port of the workers, comma-separated
          "via", // connect to this address instead, and name the worker in :authority
          "response-bytes", // size of a response
          "think-ms", // workers wait this long before they respond
          "tail-ms", // a share of the responses takes this long instead of think-ms
          "tail-share", // share of the responses with tail-ms, 0 to 1
          "blocks", // fan-outs of each reader
          "warmup-blocks", // fan-outs that do not count
          "readers", // concurrent readers; each requests one block after another
          "timeout", // seconds for each fan-out
          "start-file"); // after the warm-up write "warm" to stderr, and wait for this file

  private static final class Report {
    int blocks; // complete blocks
    double seconds;
    double goodputMbps;
    double blockP50Ms;
    double blockP99Ms;
    int errors; // blocks that did not complete
    String errorSample = "";
    String grpcVersion = ManagedChannel.class.getPackage().getImplementationVersion();
  }

  private final FanOut fanOut;
  private final AnswerRequest request;
  private final double timeoutSeconds;

  private Aggregator(FanOut fanOut, Flags flags) {
    this.fanOut = fanOut;
    request =
        AnswerRequest.newBuilder()
            .setResponseBytes(flags.whole("response-bytes", 10240))
            .setThinkUs((int) (1000 * flags.number("think-ms", 0)))
            .setTailThinkUs((int) (1000 * flags.number("tail-ms", 0)))
            .setTailShare(flags.number("tail-share", 0))
            .build();
    timeoutSeconds = flags.number("timeout", 600);
  }

  /** Returns the total payload of the responses. */
  private long ask() throws ExecutionException, InterruptedException {
    long bytes = 0;
    for (AnswerResponse response : fanOut.ask(request, timeoutSeconds)) {
      bytes += response.getPayload().size();
    }
    return bytes;
  }

  /** The results of one reader, or of all readers. */
  private static final class Read {
    final List<Double> blockMs = new ArrayList<>();
    long bytes;
    int errors;
    String errorSample = "";
  }

  private Read read(int blocks) throws InterruptedException {
    Read read = new Read();
    for (int i = 0; i < blocks; i++) {
      long blockStarted = System.nanoTime();
      try {
        read.bytes += ask();
        read.blockMs.add(1e-6 * (System.nanoTime() - blockStarted));
      } catch (ExecutionException error) {
        read.errors++;
        read.errorSample = describe(error);
      }
    }
    return read;
  }

  private Report measure(int blocks, int readers) throws ExecutionException, InterruptedException {
    ExecutorService threads = Executors.newFixedThreadPool(readers);
    long started = System.nanoTime();
    Read all = new Read();
    try {
      List<Future<Read>> reads = new ArrayList<>();
      for (int i = 0; i < readers; i++) {
        reads.add(threads.submit(() -> read(blocks)));
      }
      for (Future<Read> one : reads) {
        Read read = one.get();
        all.blockMs.addAll(read.blockMs);
        all.bytes += read.bytes;
        all.errors += read.errors;
        all.errorSample = all.errorSample.isEmpty() ? read.errorSample : all.errorSample;
      }
    } finally {
      threads.shutdownNow();
    }
    Report report = new Report();
    report.seconds = 1e-9 * (System.nanoTime() - started);
    report.blocks = all.blockMs.size();
    report.goodputMbps = 8e-6 * all.bytes / report.seconds;
    report.blockP50Ms = percentile(all.blockMs, 0.5);
    report.blockP99Ms = percentile(all.blockMs, 0.99);
    report.errors = all.errors;
    report.errorSample = all.errorSample;
    return report;
  }

  private static Report run(Flags flags) throws Exception {
    try (FanOut fanOut = new FanOut(List.of(flags.text("workers").split(",")), flags.text("via"))) {
      Aggregator aggregator = new Aggregator(fanOut, flags);
      for (int i = 0; i < flags.whole("warmup-blocks", 2); i++) {
        aggregator.ask();
      }
      awaitStart(flags.text("start-file"));
      return aggregator.measure(flags.whole("blocks", 20), flags.whole("readers", 1));
    }
  }

  private static void awaitStart(String file) throws InterruptedException {
    if (file == null) {
      return;
    }
    System.err.println("warm");
    while (!Files.exists(Path.of(file))) {
      Thread.sleep(2);
    }
  }

  /** Returns the smallest value that is not below a share of all values. */
  private static double percentile(List<Double> values, double share) {
    List<Double> sorted = values.stream().sorted().toList();
    return sorted.isEmpty() ? 0 : sorted.get(Math.max(0, (int) Math.ceil(share * sorted.size()) - 1));
  }

  private static String describe(ExecutionException error) {
    Status status = Status.fromThrowable(error);
    String cause = status.getCause() == null ? "" : ": " + status.getCause().getMessage();
    return status.getCode() + ": " + status.getDescription() + cause;
  }

  public static void main(String[] arguments) throws Exception {
    try {
      Flags flags = new Flags(arguments, FLAGS);
      if (flags.text("workers") == null) {
        throw new Flags.Usage("--workers HOST:PORT,... is required");
      }
      Report report = run(flags);
      Gson gson =
          new GsonBuilder()
              .setPrettyPrinting()
              .setFieldNamingPolicy(FieldNamingPolicy.LOWER_CASE_WITH_UNDERSCORES)
              .create();
      System.out.println(gson.toJson(report));
    } catch (Flags.Usage | NumberFormatException usage) {
      System.err.println("aggregator: " + usage.getMessage());
      System.exit(2);
    } catch (ExecutionException error) {
      System.err.println("aggregator: warm-up: " + describe(error));
      System.exit(1);
    }
  }
}
