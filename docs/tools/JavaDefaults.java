// Prints what docs/tools/java_defaults.json holds: java -cp '<kafka jars>' docs/tools/JavaDefaults.java

import java.util.TreeMap;
import org.apache.kafka.streams.StreamsConfig;

public class JavaDefaults {
    public static void main(String[] arguments) {
        String separator = "{";
        for (var key : new TreeMap<>(StreamsConfig.configDef().configKeys()).values()) {
            Object value = key.hasDefault() ? key.defaultValue : "required";
            String text = value instanceof Class<?> type ? type.getSimpleName() : String.valueOf(value == null ? "" : value);
            System.out.print(separator + "\n  \"" + key.name + "\": \"" + text + "\"");
            separator = ",";
        }
        System.out.println("\n}");
    }
}
