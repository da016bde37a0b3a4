// Prints what docs/tools/java_api.json holds: java -cp '<kafka jars>' docs/tools/JavaApi.java kafka-streams-4.3.1.jar \
//     kafka-streams-test-utils-4.3.1.jar

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.jar.JarFile;

public class JavaApi {
    private static final String PACKAGE = "org.apache.kafka.streams.";
    private static final Set<String> OF_EVERY_OBJECT = Set.of("equals", "hashCode", "toString", "values", "valueOf");

    public static void main(String[] jars) throws Exception {
        var classes = new TreeMap<String, TreeSet<String>>();
        for (String jar : jars) {
            for (var entry : new JarFile(jar).stream().toList()) {
                String name = entry.getName().replace('/', '.');
                if (name.startsWith(PACKAGE) && name.endsWith(".class") && !name.contains(".internals.")) {
                    Class<?> type = Class.forName(name.substring(0, name.length() - 6), false, JavaApi.class.getClassLoader());
                    if (isPublic(type.getModifiers()) && !type.isAnonymousClass()) {
                        classes.put(type.getName().substring(PACKAGE.length()).replace('$', '.'), methods(type));
                    }
                }
            }
        }
        String separator = "{";
        for (var each : classes.entrySet()) {
            var methods = each.getValue().stream().map(name -> '"' + name + '"').toList();
            System.out.print(separator + "\n  \"" + each.getKey() + "\": " + methods);
            separator = ",";
        }
        System.out.println("\n}");
    }

    /** Names of what the class itself has for its users and heirs, without what is deprecated. */
    private static TreeSet<String> methods(Class<?> type) {
        var names = new TreeSet<String>();
        for (Method method : type.getDeclaredMethods()) {
            boolean offered = isPublic(method.getModifiers()) && !method.isSynthetic();
            if (offered && !method.isAnnotationPresent(Deprecated.class) && !OF_EVERY_OBJECT.contains(method.getName())) {
                names.add(method.getName());
            }
        }
        return names;
    }

    private static boolean isPublic(int modifiers) {
        return Modifier.isPublic(modifiers) || Modifier.isProtected(modifiers);
    }
}
