package io.dspark.json;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class WorkerTest {
  @TempDir Path folder;

  private static ObjectNode ask(PythonCommand command, String operation) {
    return Workers.ask(command, WorkerConnection.request(operation));
  }

  @Test
  void answersComeFromOneWorkerWhateverItPrintsBeforeItIsReady() throws IOException {
    PythonCommand command = FakeWorker.command(folder, Version.RELEASE);
    assertEquals("one", ask(command, "one").path("echo").asText());
    Worker worker = Workers.get(command);
    assertEquals("two", ask(command, "two").path("echo").asText());
    assertTrue(worker == Workers.get(command));
    worker.destroy();
  }

  @Test
  void aWorkerThatDiesIsReplacedAndAskedAgain() throws IOException {
    PythonCommand command = FakeWorker.command(folder, Version.RELEASE);
    assertEquals("die once", ask(command, "die once").path("echo").asText());
    Workers.get(command).destroy();
  }

  @Test
  void aWorkerThatDiesAgainIsAnErrorThatTellsItsLastWords() throws IOException {
    PythonCommand command = FakeWorker.command(folder, Version.RELEASE);
    DSparkJsonException error = assertThrows(DSparkJsonException.class, () -> ask(command, "die"));
    assertEquals("DSPARK_JSON_WORKER_DIED", error.getCondition());
    assertTrue(error.getMessage().contains("exit code 137; it said last: "), error.getMessage());
    assertTrue(error.getMessage().contains("out of memory, say"), error.getMessage());
  }

  @Test
  void framesThatAreNoneAreFaultsAndEndTheConnection() throws IOException {
    PythonCommand command = FakeWorker.command(folder, Version.RELEASE);
    for (String what : new String[] {"too long", "negative", "not JSON", "no object"}) {
      DSparkJsonException error = assertThrows(DSparkJsonException.class, () -> ask(command, what), what);
      assertEquals("DSPARK_JSON_INTERNAL", error.getCondition());
      assertEquals("fine", ask(command, "fine").path("echo").asText());
    }
    DSparkJsonException error = assertThrows(DSparkJsonException.class, () -> ask(command, "cut"));
    assertEquals("DSPARK_JSON_WORKER_DIED", error.getCondition());
    Workers.get(command).destroy();
  }

  @Test
  void wrongOptionsAreAnIllegalArgumentWithTheTextOfPython() throws IOException {
    PythonCommand command = FakeWorker.command(folder, Version.RELEASE);
    IllegalArgumentException error =
        assertThrows(IllegalArgumentException.class, () -> WorkerAnswer.checked(ask(command, "option error")));
    assertEquals("DSPARK_JSON_INVALID_OPTION: no", error.getMessage());
    Workers.get(command).destroy();
  }

  @Test
  void withoutTheTokenThereIsNoAnswer() throws IOException {
    PythonCommand command = FakeWorker.command(folder, Version.RELEASE);
    Worker worker = Workers.get(command);
    assertThrows(
        WorkerLostException.class,
        () -> WorkerConnection.open(worker.socket(), "00".repeat(32), WorkerLostException::new).close());
    worker.destroy();
  }

  @Test
  void noWorkerBehindASocketIsOneThatIsLost() {
    assertThrows(
        WorkerLostException.class,
        () -> WorkerConnection.open(folder.resolve("none"), "", WorkerLostException::new));
  }

  @Test
  void aWorkerOfAnotherVersionIsNamedSo() throws IOException {
    PythonCommand command = FakeWorker.command(folder, "0.0.9");
    DSparkJsonException error = assertThrows(DSparkJsonException.class, () -> ask(command, "one"));
    assertEquals("DSPARK_JSON_WORKER_VERSION", error.getCondition());
    assertTrue(error.getMessage().contains("0.0.9"), error.getMessage());
    assertTrue(error.getMessage().contains(Version.RELEASE), error.getMessage());
  }

  @Test
  void aWorkerThatDoesNotStartIsAnErrorWithTheCommandAndWhatItSaid() throws IOException {
    PythonCommand broken = FakeWorker.script(folder, "echo \"$1: No module named dspark_json\" >&2; exit 1");
    DSparkJsonException error = assertThrows(DSparkJsonException.class, () -> ask(broken, "one"));
    assertEquals("DSPARK_JSON_WORKER_START", error.getCondition());
    assertTrue(error.getMessage().contains(broken.found() + " -m dspark_json.source.worker"), error.getMessage());
    assertTrue(error.getMessage().contains("exit code 1; it said: -m: No module named"), error.getMessage());
    assertTrue(error.getMessage().contains("Install dspark-json==" + Version.RELEASE), error.getMessage());
    PythonCommand missing = new PythonCommand(null, folder.resolve("nothing").toString(), "");
    error = assertThrows(DSparkJsonException.class, () -> ask(missing, "one"));
    assertEquals("DSPARK_JSON_WORKER_START", error.getCondition());
    assertTrue(error.getMessage().contains("nothing"), error.getMessage());
  }

  @Test
  void theSocketIsGoneWithItsWorker() throws IOException, InterruptedException {
    Worker worker = Workers.get(FakeWorker.command(folder, Version.RELEASE));
    Path socket = worker.socket();
    assertTrue(socket.toFile().exists());
    worker.destroy();
    for (int tries = 0; tries < 100 && socket.getParent().toFile().exists(); tries++) {
      Thread.sleep(50);
    }
    assertFalse(socket.getParent().toFile().exists());
  }
}
