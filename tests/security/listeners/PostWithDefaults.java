import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;

/** KEY BODY URL...: posts the body to each URL three times, as java.net.http does by default: it offers h2c. */
public class PostWithDefaults {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int number = 2; number < arguments.length; number++) {
            for (boolean sized : new boolean[] {true, false, true}) {
                BodyPublisher body = BodyPublishers.ofString(arguments[1]);
                HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[number]))
                    .header("Content-Type", "application/json")
                    .header("Authorization", "Bearer " + arguments[0])
                    // Without a length the client sends chunks.
                    .POST(sized ? body : BodyPublishers.fromPublisher(body))
                    .build();
                HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
                System.out.println(answer.statusCode() + " " + answer.version() + " " + answer.body());
            }
        }
    }
}
