import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.TreeMap;
import java.util.jar.JarFile;
import org.apache.hudi.common.config.ConfigProperty;

/**
 * Prints every configuration key that a Hudi jar declares, one line of JSON each.
 *
 * <p>Hudi declares its keys as fields of the type ConfigProperty: static ones in Java, fields of the
 * singleton in Scala. Classes that cannot be initialised without further libraries are listed on
 * stderr.
 */
public final class HudiConfigs {
  public static void main(String[] args) throws Exception {
    TreeMap<String, String> found = new TreeMap<>();
    for (String jar : args) {
      for (String name : classNames(jar)) {
        collect(name, found);
      }
    }
    found.values().forEach(System.out::println);
  }

  private static List<String> classNames(String jar) throws Exception {
    List<String> names = new ArrayList<>();
    try (JarFile file = new JarFile(jar)) {
      file.stream()
          .map(entry -> entry.getName())
          .filter(name -> name.startsWith("org/apache/hudi/") && name.endsWith(".class"))
          .map(name -> name.substring(0, name.length() - ".class".length()).replace('/', '.'))
          .sorted()
          .forEach(names::add);
    }
    return names;
  }

  private static void collect(String name, TreeMap<String, String> found) {
    try {
      Class<?> type = Class.forName(name, false, HudiConfigs.class.getClassLoader());
      for (Field field : type.getDeclaredFields()) {
        if (field.getType() != ConfigProperty.class) {
          continue;
        }
        field.setAccessible(true);
        Object owner = Modifier.isStatic(field.getModifiers()) ? null : singleton(type);
        if (owner == null && !Modifier.isStatic(field.getModifiers())) {
          continue;
        }
        ConfigProperty<?> property = (ConfigProperty<?>) field.get(owner);
        if (property != null) {
          found.putIfAbsent(property.key(), line(name, property));
        }
      }
    } catch (Throwable e) {
      System.err.println(name + ": " + e);
    }
  }

  private static Object singleton(Class<?> type) throws ReflectiveOperationException {
    try {
      return type.getField("MODULE$").get(null);
    } catch (NoSuchFieldException e) {
      return null;
    }
  }

  private static String line(String name, ConfigProperty<?> property) throws Exception {
    StringBuilder out = new StringBuilder("{\"key\": ").append(quoted(property.key()));
    out.append(", \"aliases\": [");
    Method alternatives = ConfigProperty.class.getMethod("getAlternatives");
    String separator = "";
    for (Object alias : (Collection<?>) alternatives.invoke(property)) {
      out.append(separator).append(quoted(alias.toString()));
      separator = ", ";
    }
    out.append("], \"default\": ");
    out.append(property.hasDefaultValue() ? quoted(shown(property.defaultValue())) : "null");
    return out.append(", \"class\": ").append(quoted(name.replace("$", ""))).append("}").toString();
  }

  private static String shown(Object value) {
    return value instanceof Enum<?> one ? one.name() : String.valueOf(value);
  }

  private static String quoted(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < ' ') {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    return out.append('"').toString();
  }
}
