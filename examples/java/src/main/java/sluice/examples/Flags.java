package sluice.examples;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Flags in the form --name value. */
final class Flags {
  static final class Usage extends RuntimeException {
    Usage(String message) {
      super(message);
    }
  }

  private final Map<String, String> values = new HashMap<>();

  Flags(String[] arguments, List<String> known) {
    for (int i = 0; i < arguments.length; i += 2) {
      String name = arguments[i].startsWith("--") ? arguments[i].substring(2) : "";
      if (!known.contains(name)) {
        throw new Usage(arguments[i] + " is no flag; there are " + String.join(", ", known));
      }
      if (i + 1 == arguments.length) {
        throw new Usage(arguments[i] + " has no value");
      }
      values.put(name, arguments[i + 1]);
    }
  }

  String text(String name) {
    return values.get(name);
  }

  int whole(String name, int otherwise) {
    return values.containsKey(name) ? Integer.parseInt(values.get(name)) : otherwise;
  }

  double number(String name, double otherwise) {
    return values.containsKey(name) ? Double.parseDouble(values.get(name)) : otherwise;
  }
}
