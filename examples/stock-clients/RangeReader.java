import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Reads an object with the JDK's own client: a range from each HTTPS server, all at once. Reads it again for each line of
 * stdin, compares each byte, and prints the number of bytes.
 */
public final class RangeReader {
  private final HttpClient client;
  private final byte[] object;
  private final List<HttpRequest> requests = new ArrayList<>();
  private final int size; // of a range

  private RangeReader(Path data, List<String> workers) throws Exception {
    // The client takes the proxy of the system properties https.proxyHost and https.proxyPort.
    client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).sslContext(trusting(data.resolve("cert.pem"))).build();
    object = Files.readAllBytes(data.resolve("object"));
    size = object.length / workers.size();
    for (int i = 0; i < workers.size(); i++) {
      String range = "bytes=" + i * size + "-" + ((i + 1) * size - 1);
      requests.add(HttpRequest.newBuilder(URI.create("https://" + workers.get(i) + "/object")).header("Range", range).build());
    }
  }

  private int read() throws IOException {
    List<CompletableFuture<HttpResponse<byte[]>>> responses = new ArrayList<>();
    for (HttpRequest request : requests) {
      responses.add(client.sendAsync(request, HttpResponse.BodyHandlers.ofByteArray()));
    }
    for (int i = 0; i < requests.size(); i++) {
      HttpResponse<byte[]> response = responses.get(i).join();
      if (response.statusCode() != 206 || !Arrays.equals(response.body(), Arrays.copyOfRange(object, i * size, (i + 1) * size))) {
        throw new IOException(requests.get(i).uri() + ": status " + response.statusCode() + ", or a wrong byte");
      }
    }
    return size * requests.size();
  }

  private static SSLContext trusting(Path certificate) throws Exception {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    try (InputStream file = Files.newInputStream(certificate)) {
      store.setCertificateEntry("workers", CertificateFactory.getInstance("X.509").generateCertificate(file));
    }
    TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    return context;
  }

  public static void main(String[] arguments) throws Exception {
    List<String> workers = List.of(arguments).subList(1, arguments.length);
    RangeReader reader = new RangeReader(Path.of(arguments[0]), workers);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    while (lines.readLine() != null) {
      System.out.println(reader.read());
    }
  }
}
