// A store of sessions, the least recently used of which is dropped, in Java: `Sessions SECONDS`.
//
// 200,000 sessions are held. 4,000 requests a second are for the 20,000 that were used last, and one in fifty begins a new one.

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;

final class Sessions {
  private static final int HELD = 200_000;
  private static final int RECENT = 20_000;
  private static final int RATE = 20;
  private static final int BATCH = 200;

  private record Session(String user, byte[] state, long[] visited) {}

  private static Session begin(int number) {
    return new Session("user " + number, new byte[600], new long[16]);
  }

  public static void main(String[] args) throws InterruptedException {
    Map<Integer, Session> sessions =
        new LinkedHashMap<>(HELD * 2, 0.75f, true) {
          @Override
          protected boolean removeEldestEntry(Map.Entry<Integer, Session> eldest) {
            return size() > HELD;
          }
        };
    int next = 0;
    while (next < HELD) {
      sessions.put(next, begin(next));
      next++;
    }
    Random draw = new Random(1);
    long calls = (long) (RATE * Double.parseDouble(args[0]));
    long start = System.nanoTime();
    long took = 0;
    long sent = 0;
    for (long call = 1; call <= calls; call++) {
      // What comes late is not left out.
      long early = start + call * 1_000_000_000L / RATE - System.nanoTime();
      if (early > 0) {
        Thread.sleep(early / 1_000_000, (int) (early % 1_000_000));
      }
      long begun = System.nanoTime();
      for (int i = 0; i < BATCH; i++) {
        Session session = sessions.get(next - 1 - draw.nextInt(RECENT));
        session.visited()[i % 16] = call;
        sent += (session.user() + " has been here " + session.visited()[0]).length();
        if (i % 50 == 0) {
          sessions.put(next, begin(next));
          next++;
        }
      }
      took += System.nanoTime() - begun;
    }
    System.out.printf("sent: %d, mean: %.3f ms%n", sent, took / 1e6 / calls);
  }
}
