package io.dspark.json;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * A process in the place of the Python worker, so that it can be made to fail in every way. A split's text says how it
 * behaves; what it has to remember beyond its death is in files beside the command that starts it.
 */
final class FakeWorker {
  static final StructType SCHEMA = new StructType().add("n", DataTypes.LongType).add("text", DataTypes.StringType);
  static final int BATCH_ROWS = 100;
  static final int BATCHES = 5;

  private static final ObjectMapper JSON = new ObjectMapper();

  private final Path folder;
  private final String token;

  private FakeWorker(Path folder, String token) {
    this.folder = folder;
    this.token = token;
  }

  /** A command that starts one; {@code version} is the one it claims to have. */
  static PythonCommand command(Path folder, String version) throws IOException {
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    return script(
        folder,
        "exec '" + java + "' --add-opens=java.base/java.nio=ALL-UNNAMED -XX:TieredStopAtLevel=1 -cp '"
            + System.getProperty("java.class.path") + "' " + FakeWorker.class.getName() + " '" + folder + "' " + version
            + " \"$3\"");
  }

  /** A command that runs these lines of shell. */
  static PythonCommand script(Path folder, String lines) throws IOException {
    Path script = folder.resolve("python");
    Files.writeString(script, "#!/bin/sh\n" + lines + "\n");
    Files.setPosixFilePermissions(script, PosixFilePermissions.fromString("rwx------"));
    return new PythonCommand(script.toString(), script.toString(), "");
  }

  /** All rows of a split, in order. */
  static List<InternalRow> rows() {
    return new Values(new Random(3), 0.1).rows(SCHEMA, BATCH_ROWS * BATCHES);
  }

  public static void main(String[] arguments) throws IOException {
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    FakeWorker worker = new FakeWorker(Path.of(arguments[0]), input.readLine());
    ServerSocketChannel listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    listener.bind(UnixDomainSocketAddress.of(arguments[2]));
    System.err.println("INFO dspark_json.fake is up");
    System.out.println("a line that some library prints");
    System.out.println(
        JSON.createObjectNode().put("ready", true).put("protocol", 1).put("version", arguments[1]).put("pid", 1));
    Thread end =
        new Thread(
            () -> {
              try {
                while (input.readLine() != null) {
                  continue;
                }
              } catch (IOException e) {
                // as good as the end
              }
              Runtime.getRuntime().halt(0);
            });
    end.start();
    while (true) {
      SocketChannel channel = listener.accept();
      new Thread(() -> worker.serve(channel)).start();
    }
  }

  private void serve(SocketChannel channel) {
    try (channel;
        DataInputStream in = new DataInputStream(Channels.newInputStream(channel));
        DataOutputStream out = new DataOutputStream(Channels.newOutputStream(channel))) {
      if (!receive(in).path("token").asText().equals(token)) {
        return;
      }
      send(out, JSON.createObjectNode().put("ok", true));
      while (true) {
        ObjectNode request = receive(in);
        if (request.path("op").asText().equals("read")) {
          read(request, out);
        } else {
          answer(request, out);
        }
      }
    } catch (EOFException e) {
      // the other side has gone
    } catch (IOException e) {
      System.err.println("ERROR dspark_json.fake " + e);
    }
  }

  private void answer(ObjectNode request, DataOutputStream out) throws IOException {
    switch (request.path("op").asText()) {
      case "die once" -> {
        if (isFirst("died")) {
          die();
        }
      }
      case "die" -> die();
      case "option error" -> {
        ObjectNode error = JSON.createObjectNode().put("ok", false).put("code", "DSPARK_JSON_INVALID_OPTION");
        send(out, error.put("text", "DSPARK_JSON_INVALID_OPTION: no").put("kind", "option"));
        return;
      }
      case "too long" -> out.writeInt(WorkerConnection.MOST_BYTES + 1);
      case "negative" -> out.writeInt(-1);
      case "not JSON" -> {
        out.writeInt(5);
        out.write("{\"ok\"".getBytes(StandardCharsets.UTF_8), 0, 5);
      }
      case "no object" -> {
        out.writeInt(2);
        out.write("[]".getBytes(StandardCharsets.UTF_8));
      }
      case "cut" -> {
        out.writeInt(50);
        out.write("{\"ok\":".getBytes(StandardCharsets.UTF_8));
        throw new EOFException();
      }
      default -> {}
    }
    send(out, JSON.createObjectNode().put("ok", true).put("echo", request.path("op").asText()));
  }

  private void read(ObjectNode request, DataOutputStream out) throws IOException {
    int skip = request.path("skip_rows").asInt();
    String behaviour = request.path("split").asText();
    List<InternalRow> left = rows().subList(skip, BATCH_ROWS * BATCHES);
    if (skip > 0 && !request.path("began").asText().equals("7")) {
      throw new IOException("a read goes on without saying where it began");
    }
    send(out, JSON.createObjectNode().put("ok", true).put("began", "7"));
    List<List<InternalRow>> batches =
        java.util.stream.IntStream.range(0, left.size() / BATCH_ROWS)
            .mapToObj(k -> left.subList(k * BATCH_ROWS, (k + 1) * BATCH_ROWS))
            .toList();
    byte[] stream = ArrowBytes.of(SCHEMA, batches);
    ObjectNode trailer = JSON.createObjectNode().put("ok", true).put("rows", left.size());
    trailer.putObject("metrics").put("records", 500).put("parse_ns", 3_000_000);
    switch (behaviour) {
      case "dies twice" -> {
        if (isFirst("first") || isFirst("second")) {
          out.write(stream, 0, ArrowBytes.of(SCHEMA, batches.subList(0, 2)).length);
          die();
        }
      }
      case "always dies" -> die();
      case "dies before the trailer" -> {
        if (isFirst("first")) {
          out.write(stream);
          die();
        }
      }
      case "fails in the middle" -> {
        out.write(ArrowBytes.of(SCHEMA, batches.subList(0, 2)));
        ObjectNode error = JSON.createObjectNode().put("ok", false).put("code", "DSPARK_JSON_MALFORMED_RECORD");
        send(out, error.put("text", "DSPARK_JSON_MALFORMED_RECORD: record 201").put("kind", "data"));
        return;
      }
      case "miscounts" -> trailer.put("rows", 499);
      case "garbage" -> Arrays.fill(stream, stream.length / 2, stream.length, (byte) 'x');
      case "other columns" ->
          stream = ArrowBytes.of(new StructType().add("n", DataTypes.StringType), List.of());
      default -> {}
    }
    out.write(stream);
    send(out, trailer);
  }

  private boolean isFirst(String what) throws IOException {
    Path mark = folder.resolve(what);
    if (Files.exists(mark)) {
      return false;
    }
    Files.createFile(mark);
    return true;
  }

  private static void die() {
    System.err.println("ERROR dspark_json.fake out of memory, say");
    System.err.flush();
    Runtime.getRuntime().halt(137);
  }

  private static ObjectNode receive(DataInputStream in) throws IOException {
    byte[] text = new byte[in.readInt()];
    in.readFully(text);
    return (ObjectNode) JSON.readTree(text);
  }

  private static void send(DataOutputStream out, ObjectNode frame) throws IOException {
    byte[] text = JSON.writeValueAsBytes(frame);
    out.writeInt(text.length);
    out.write(text);
  }
}
