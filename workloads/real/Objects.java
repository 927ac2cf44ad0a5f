import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;

/** Records of which a tenth is read, beside objects that are made and dropped: {@code Objects STEPS}. */
public class Objects {
    private static final int RECORDS = 300_000, BATCH = 1000;

    private record Item(int key, byte[] body, String name) {}

    public static void main(String[] args) {
        long steps = Long.parseLong(args[0]);
        Map<Integer, Item> table = new HashMap<>();
        for (int key = 0; key < RECORDS; key++) {
            table.put(key, new Item(key, new byte[700], "item " + key));
        }
        SplittableRandom draw = new SplittableRandom(1);
        long total = 0;
        for (long step = 0; step < steps; step += BATCH) {
            List<String> made = new ArrayList<>();
            for (int i = 0; i < BATCH; i++) {
                made.add(Long.toString(step + i));
            }
            for (String name : made) {
                total += table.get(draw.nextInt(RECORDS / 10)).key() + name.length();
            }
        }
        System.out.println("total: " + total);
    }
}
