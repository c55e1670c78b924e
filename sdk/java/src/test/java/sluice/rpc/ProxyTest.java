package sluice.rpc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static sluice.rpc.Workers.call;

import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/**
 * Tests with a real sluice-proxy: SLUICE_TEST_PROXY is its address, and SLUICE_TEST_ADMIN its admin address. The tests
 * serve the workers themselves, at the addresses SLUICE_TEST_WORKERS with port 0, which the proxy must permit.
 */
@EnabledIfEnvironmentVariable(named = "SLUICE_TEST_PROXY", matches = ".+")
class ProxyTest {
  private static final Duration PATIENCE = Duration.ofSeconds(Workers.PATIENCE_S);

  private final List<ManagedChannel> channels = new ArrayList<>();
  private Workers workers;

  @BeforeEach
  void setUp() throws Exception {
    workers = new Workers(System.getenv("SLUICE_TEST_WORKERS").split(","));
    workers.addresses.forEach(this::connect);
  }

  @AfterEach
  void tearDown() {
    channels.forEach(ManagedChannel::shutdownNow);
    workers.close();
  }

  private ManagedChannel connect(String worker) {
    channels.add(Sluice.proxied(System.getenv("SLUICE_TEST_PROXY"), worker).build());
    return channels.get(channels.size() - 1);
  }

  private CompletableFuture<FanOutResult<String>> ask() {
    FanOut<String> fanOut = FanOut.within(PATIENCE);
    channels.forEach(channel -> fanOut.ask(call(channel, "wait")));
    return fanOut.start();
  }

  private static void expectBlocks(int blocks) throws Exception {
    URI page = URI.create("http://" + System.getenv("SLUICE_TEST_ADMIN") + "/metrics");
    String text =
        HttpClient.newHttpClient().send(HttpRequest.newBuilder(page).build(), HttpResponse.BodyHandlers.ofString()).body();
    Matcher found = Pattern.compile("^sluice_queued_blocks (\\d+)", Pattern.MULTILINE).matcher(text);
    assertTrue(found.find());
    assertEquals(blocks, Integer.parseInt(found.group(1)));
  }

  @Test
  void theProxyKnowsFanOutsAndMarkedCalls() throws Exception {
    List<CompletableFuture<FanOutResult<String>>> running = List.of(ask(), ask(), ask());
    Mark mark = Mark.fanOut(channels.size());
    for (ManagedChannel channel : channels) {
      mark.call(call(channel, "wait")::get);
    }
    for (Metadata metadata : workers.seen(4 * channels.size())) {
      assertTrue(metadata.keys().stream().noneMatch(key -> key.startsWith("sluice-") && !key.equals("sluice-client")), metadata.toString());
    }
    expectBlocks(4);
    workers.release();
    for (CompletableFuture<FanOutResult<String>> each : running) {
      each.get().check();
    }
  }

  @Test
  void aWorkerThatIsNotPermitted() {
    FanOut<String> fanOut = FanOut.within(PATIENCE);
    Throwable error = fanOut.ask(call(connect("192.0.2.1:7000"), "a")).call().errors().get(0);
    assertEquals(Status.Code.PERMISSION_DENIED, Status.fromThrowable(error).getCode());
  }
}
